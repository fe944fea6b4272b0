"""The Grafana dashboards of docs/dashboards: they can be imported, and ask only for what agents serve."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from stacks.settings import REPOSITORY
from tests.support.agent_fakes import NodeFolder
from tests.unit.agent.metrics_page import everything

FOLDER = REPOSITORY / "docs" / "dashboards"
DASHBOARDS = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.json"))}
PICTURE_BYTES = 150_000
COLUMNS = 24
SOURCE = {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}
_METRIC = re.compile(r"\bnodeheal_\w+")
_LABELS = re.compile(r"(?:by|on|group_left)\s*\(([^)]*)\)|(\w+)\s*(?:=~|!=|=)\s*\"|\{\{(\w+)\}\}")


@pytest.fixture(params=list(DASHBOARDS))
def dashboard(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = DASHBOARDS[request.param]
    return found


def queries(dashboard: dict[str, Any]) -> list[str]:
    """Every query of panels and variables, with its legend."""
    panels = [
        f"{target['expr']} {target['legendFormat']}" for panel in dashboard["panels"] for target in panel["targets"]
    ]
    return [*panels, *(variable["definition"] for variable in dashboard["templating"]["list"])]


def test_there_is_one_for_the_fleet_and_one_for_a_node() -> None:
    assert set(DASHBOARDS) == {"nodeheal-fleet", "nodeheal-node"}
    assert all(found["uid"] == name for name, found in DASHBOARDS.items())


def test_every_query_asks_for_what_agents_serve(dashboard: dict[str, Any], node: NodeFolder) -> None:
    served = everything(node)
    known = {name: {key for labels in family.samples for key, _ in labels} for name, family in served.items()}

    for query in queries(dashboard):
        metrics = _METRIC.findall(query)
        assert metrics, query
        assert set(metrics) <= known.keys(), query
        labels = {part.strip() for found in _LABELS.findall(query) for one in found for part in one.split(",")} - {""}
        assert labels <= set().union(*(known[metric] for metric in metrics)), query


def test_grafana_asks_for_the_data_source_once_and_every_panel_uses_it(dashboard: dict[str, Any]) -> None:
    [asked] = dashboard["__inputs"]
    panels, variables = dashboard["panels"], dashboard["templating"]["list"]

    assert (asked["name"], asked["type"], asked["pluginId"]) == ("DS_PROMETHEUS", "datasource", "prometheus")
    assert dashboard["id"] is None
    assert all(one["datasource"] == SOURCE for one in [*panels, *variables])
    assert all(target["datasource"] == SOURCE for panel in panels for target in panel["targets"])
    required = {(one["type"], one["id"]) for one in dashboard["__requires"]}
    assert {("panel", panel["type"]) for panel in panels} <= required


def test_every_variable_of_a_query_is_one_of_the_dashboards(dashboard: dict[str, Any]) -> None:
    used = set(re.findall(r"\$(\w+)", " ".join(queries(dashboard)))) - {"__rate_interval"}

    assert used <= {variable["name"] for variable in dashboard["templating"]["list"]}


def test_panels_have_ids_of_their_own_and_do_not_overlap(dashboard: dict[str, Any]) -> None:
    panels = dashboard["panels"]
    cells = [
        {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        for at in (panel["gridPos"] for panel in panels)
    ]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(x < COLUMNS for covered in cells for x, _ in covered)
    assert [1 for one, other in itertools.combinations(cells, 2) if one & other] == []


def test_faults_are_not_counted_by_increase(dashboard: dict[str, Any]) -> None:
    """Prometheus' `increase` of a series that begins with 1 is 0: it would miss the first fault of each code."""
    assert [query for query in queries(dashboard) if re.search(r"(increase|rate)\(nodeheal_faults_total", query)] == []


def test_links_lead_to_the_other_dashboard(dashboard: dict[str, Any]) -> None:
    [target] = [re.match(r"/d/([\w-]+)", link["url"]) for link in dashboard["links"]]

    assert target is not None
    assert target[1] in DASHBOARDS.keys() - {dashboard["uid"]}


@pytest.mark.parametrize("name", ["fleet", "node", "nodes"])
def test_the_document_shows_a_small_picture_of_each(name: str) -> None:
    page = (REPOSITORY / "docs" / "metrics.md").read_text("utf-8")

    assert f"](dashboards/{name}.png)" in page
    assert 0 < (Path(FOLDER) / f"{name}.png").stat().st_size < PICTURE_BYTES
