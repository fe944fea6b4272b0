"""The plain manifest is the chart's, and its parts agree with each other and with the code."""

from pathlib import Path

import pytest
import yaml

from nodeheal import __version__
from nodeheal.adapters.kubernetes.node_commands import TEMPLATE
from nodeheal.contract import names
from tools import chart


def _objects(text: str) -> list[dict[str, object]]:
    objects = [each for each in yaml.safe_load_all(text) if each]
    return [item for each in objects for item in (each["items"] if each["kind"] == "List" else [each])]


def test_the_manifest_is_that_of_the_chart() -> None:
    assert chart.render() == chart.MANIFEST.read_text("utf-8"), "run python -m tools.chart"


def test_another_construct_of_helms_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "values.yaml").write_text("image: a")
    (tmp_path / "templates" / "one.yaml").write_text('kind: {{ include "name" . }}')
    monkeypatch.setattr(chart, "CHART", tmp_path)

    with pytest.raises(ValueError, match="another construct"):
        chart.render()


def test_a_configuration_of_several_lines_stays_one_text() -> None:
    config = 'cluster = "a"\n[[kernel_log]]\nkind = "kmsg"\n'

    [found] = [each for each in _objects(chart.render({"config": config})) if each["kind"] == "ConfigMap"]

    assert found["data"] == {"agent.toml": config}


def test_the_chart_has_the_projects_version_and_the_names_of_the_code() -> None:
    about = yaml.safe_load((chart.CHART / "Chart.yaml").read_text("utf-8"))
    objects = _objects(chart.render())

    kinds = {(each["kind"], each["metadata"]["name"]) for each in objects}  # type: ignore[index]
    namespaces = {each["metadata"].get("namespace") for each in objects}  # type: ignore[attr-defined]
    assert (about["version"], about["appVersion"]) == (__version__, __version__)
    assert ("PodTemplate", TEMPLATE) in kinds
    assert namespaces <= {None, names.KUBERNETES_NAMESPACE}


def test_the_daemon_set_and_the_commands_have_the_same_rights() -> None:
    pods = {
        str(each["kind"]): (each["spec"]["template"] if each["kind"] == "DaemonSet" else each["template"])["spec"]  # type: ignore[index]
        for each in _objects(chart.render())
        if each["kind"] in ("DaemonSet", "PodTemplate")
    }

    shared = ("volumes", "serviceAccountName", "hostNetwork", "hostPID", "initContainers", "tolerations")
    rights = [
        {name: pod[name] for name in shared} | {"security": pod["containers"][0]["securityContext"]}
        for pod in pods.values()
    ]
    assert rights[0] == rights[1]
    assert rights[0]["security"] == {"privileged": True, "readOnlyRootFilesystem": True}
