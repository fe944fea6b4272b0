"""`python -m bench.dashboards --prometheus PROGRAM`: collects the dashboards' data, and draws them.

Six agents on simulated GPUs run for some minutes under a real Prometheus (such as Debian's package `prometheus`). The
pictures are drawn by matplotlib, not by Grafana or CloudWatch; their queries and their numbers are real.
"""

import argparse
import json
import socket
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from bench.dashboards.answers import graphs, panels, prometheus
from bench.dashboards.nodes import SICK, Story, running
from bench.dashboards.pictures import draw

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "dashboards"
COLLECTED = Path("build/dashboards.json")
STEP_SECONDS = 5.0


def main() -> None:
    """Collect, unless that was done before, and draw."""
    parser = argparse.ArgumentParser(prog="python -m bench.dashboards", description=__doc__)
    parser.add_argument(
        "--prometheus", metavar="PROGRAM", help="collect again with this program; otherwise draw the existing data"
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    arguments = parser.parse_args()
    if arguments.prometheus:
        COLLECTED.parent.mkdir(exist_ok=True)
        COLLECTED.write_text(json.dumps(_collected(arguments.prometheus, 60 * arguments.minutes)), "utf-8")
    draw(json.loads(COLLECTED.read_text("utf-8")), FOLDER)


def _collected(program: str, seconds: float) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as directory, running(Path(directory) / "nodes", datetime.now(UTC)) as nodes:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = int(server.getsockname()[1])
        with prometheus(program, Path(directory), nodes, port) as address:
            story, began, at = Story(nodes), time.monotonic(), time.time()
            while (passed := time.monotonic() - began) < seconds:
                story.goes_on(passed / seconds)
                time.sleep(STEP_SECONDS)
            span = (at, time.time())
            pages = {
                name: json.loads((FOLDER / f"nodeheal-{name}.json").read_text("utf-8")) for name in ("fleet", "node")
            }
            variables = {"pool": ".*", "node": nodes[SICK].node_id, "__rate_interval": "60s"}
            return {
                "span": span,
                **{name: panels(page, address, variables, span) for name, page in pages.items()},
                "nodes": graphs(nodes),
            }


if __name__ == "__main__":
    main()
