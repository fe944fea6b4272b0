"""Answers the dashboards' queries: from a real Prometheus, and from the agents' CloudWatch metrics."""

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.dashboards.nodes import SimulatedNode
from stacks.dashboard import NODE_GRAPHS, NODES_SHOWN

EVERY_SECONDS, UP_SECONDS = 5, 30.0
_STATISTICS = {
    "MAX": lambda one: one["Maximum"],
    "MIN": lambda one: one["Minimum"],
    "AVG": lambda one: one["Sum"] / one["SampleCount"],
}
Series = list[tuple[float, float]]


@contextmanager
def prometheus(program: str, folder: Path, nodes: Sequence[SimulatedNode], port: int) -> Iterator[str]:
    """Run a Prometheus that scrapes the nodes; yields its address."""
    targets = [f"127.0.0.1:{node.port}" for node in nodes]
    config = {
        "global": {"scrape_interval": f"{EVERY_SECONDS}s"},
        "scrape_configs": [{"job_name": "nodeheal", "static_configs": [{"targets": targets}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config), "utf-8")  # JSON is YAML
    command = [program, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stderr=log)
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_until_ready(address)
        yield address
    finally:
        process.terminate()
        process.wait()


def _wait_until_ready(address: str) -> None:
    ends_at = time.monotonic() + UP_SECONDS
    while True:
        try:
            urllib.request.urlopen(f"{address}/-/ready", timeout=5).close()
        except OSError:
            if time.monotonic() > ends_at:
                raise
            time.sleep(0.2)
        else:
            return


def panels(dashboard: Mapping[str, Any], address: str, variables: Mapping[str, str], span: tuple[float, float]) -> Any:
    """Return each panel of a Grafana dashboard with the answers to its queries: a name and a series for each."""
    found = []
    for panel in dashboard["panels"]:
        answers = []
        for target in panel["targets"]:
            query = target["expr"]
            for name, value in variables.items():
                query = query.replace(f"${name}", value)
            answers += [
                {"labels": one["metric"], "name": _name(target["legendFormat"], one["metric"]), "values": one["values"]}
                for one in _asked(address, query, span)
            ]
        found.append({**{key: panel[key] for key in ("title", "type", "gridPos", "fieldConfig")}, "answers": answers})
    return found


def _asked(address: str, query: str, span: tuple[float, float]) -> list[dict[str, Any]]:
    asked = {"query": query, "start": span[0], "end": span[1], "step": EVERY_SECONDS}
    url = f"{address}/api/v1/query_range?{urllib.parse.urlencode(asked)}"
    with urllib.request.urlopen(url, timeout=60) as answer:
        result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return [{**one, "values": [(at, float(value)) for at, value in one["values"]]} for one in result]


def _name(legend: str, labels: Mapping[str, str]) -> str:
    for key, value in labels.items():
        legend = legend.replace(f"{{{{{key}}}}}", value)
    return legend if "{{" not in legend else "(none)"


def graphs(nodes: Sequence[SimulatedNode]) -> list[list[dict[str, Any]]]:
    """Return each graph of the CloudWatch dashboard of nodes, from the agents' metrics, by its own statistic."""
    return [
        [
            {"title": graph.title, "answers": _standing_out(nodes, graph.metric, graph.statistic, graph.is_lowest)}
            for graph in row
        ]
        for row in NODE_GRAPHS
    ]


def _standing_out(nodes: Sequence[SimulatedNode], metric: str, statistic: str, is_lowest: bool) -> list[dict[str, Any]]:
    series = defaultdict[str, Series](list)
    for node in nodes:
        for put in node.puts:
            for datum in put["MetricData"]:
                if datum["MetricName"] == metric and len(datum["Dimensions"]) == 1:
                    value = _STATISTICS[statistic](datum["StatisticValues"])
                    series[node.node_id].append((datum["Timestamp"], value))
    pick = min if is_lowest else max
    ranked = sorted(series.items(), key=lambda one: pick(value for _, value in one[1]), reverse=not is_lowest)
    return [{"name": name, "values": values} for name, values in ranked[:NODES_SHOWN]]
