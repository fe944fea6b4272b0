"""The configuration says what is wrong with it."""

import json
from pathlib import Path
from typing import Any

import pytest

from nodeheal.agent import config as configuration
from nodeheal.agent.config import ConfigError, KernelLog, config_path, load
from nodeheal.contract.health_event import LABELS, NODE_ID_PATTERN

REPOSITORY = Path(__file__).parents[3]
LEAST: dict[str, Any] = {
    "node_id": "mi-0a1b",
    "cluster": "training",
    "pool": "h100",
    "provider": "hybrid",
    "region": "eu-central-1",
}


def written(directory: Path, **changes: Any) -> Path:
    path = directory / "agent.json"
    path.write_text(json.dumps({**LEAST, **changes}))
    return path


def test_five_keys_are_enough(tmp_path: Path) -> None:
    config = load(written(tmp_path))

    assert config.identity.instance_id == "mi-0a1b"
    assert config.kernel_log == (KernelLog("kmsg", "/dev/kmsg"),)
    assert (config.bus, config.heartbeat_seconds, config.state_dir) == ("nodeheal", 60.0, "/var/lib/nodeheal")


def test_the_example_that_is_shipped_is_valid() -> None:
    assert load(REPOSITORY / "packaging" / "agent.json.example").accelerators == 8


def test_an_unknown_key_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"agent\.json: unknown key 'heartbeat'"):
        load(written(tmp_path, heartbeat=60))


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    path = tmp_path / "agent.json"
    path.write_text(json.dumps({key: value for key, value in LEAST.items() if key != "pool"}))

    with pytest.raises(ConfigError, match=r"agent\.json: key 'pool' is missing"):
        load(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("node_id", "-x"),
        ("node_id", 7),
        ("pool", ""),
        ("pool", "p" * 129),
        ("provider", "gcp"),
        ("endpoint_url", "events.example.org"),
        ("kernel_log", []),
        ("kernel_log", [{"kind": "journal", "path": "/x"}]),
        ("kernel_log", [{"kind": "file"}]),
        ("heartbeat_seconds", 0),
        ("heartbeat_seconds", True),
        ("heartbeat_seconds", "60"),
        ("accelerators", -1),
        ("accelerators", 1.5),
        ("drills", "yes"),
        ("spool_mib", 0),
        ("region", None),
        ("product", ""),
        ("labels", ["rack"]),
        ("labels", {"rack": 7}),
        ("labels", {"": "r7"}),
        ("labels", {f"label-{n}": "x" for n in range(17)}),
    ],
)
def test_a_wrong_value_is_refused_with_its_key(tmp_path: Path, key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"key '{key}' must be"):
        load(written(tmp_path, **{key: value}))


@pytest.mark.parametrize("content", ["", "[]", '{"node_id": '])
def test_a_file_that_is_no_json_object_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "agent.json"
    path.write_text(content)

    with pytest.raises(ConfigError, match=r"agent\.json"):
        load(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.json: cannot be read"):
        load(tmp_path / "nowhere.json")


def test_the_command_line_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODEHEAL_AGENT_CONFIG", "/from/environment")

    assert config_path("/from/command") == Path("/from/command")
    assert config_path(None) == Path("/from/environment")


def test_what_a_node_shares_with_others_goes_into_its_identity(tmp_path: Path) -> None:
    config = load(written(tmp_path, product="H100", labels={"rack": "r7"}))

    assert (config.identity.product, config.identity.labels) == ("H100", {"rack": "r7"})


def test_as_many_labels_as_the_contract_takes() -> None:
    assert configuration.LABELS == LABELS


def test_node_ids_are_held_to_the_contracts_pattern() -> None:
    assert f"^{configuration._NODE_ID.pattern}$" == NODE_ID_PATTERN
