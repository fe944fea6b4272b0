"""The bills of the main stories, and docs/cost.md's tables. `python -m tests.workflows.bill` writes them."""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

import boto3
from moto import mock_aws

from nodeheal.agent.transport.heartbeat_client import HeartbeatContent, request
from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.domain.jobs.owner import parse_owner
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Evidence
from nodeheal.ports import Ports
from nodeheal.services.intake.ingest import ingest
from nodeheal.simulation.prices import cost
from tests.support.agent_fakes import PUBLIC_KEY
from tests.support.builders import ACT, NOW, FrozenClock, node, stored_job, xid
from tests.support.dynamo_tables import dynamo_ports
from tests.support.fake_cluster import BROKEN, FakeCluster
from tests.workflows.meter import UnitMeter, Units, count, of_beat, of_heartbeat

COST_PAGE = Path(__file__).resolve().parents[2] / "docs" / "cost.md"
BEGIN, END = "<!-- counted: python -m tests.workflows.bill -->", "<!-- /counted -->"
REGION = "us-east-1"
# With evidence, as by default: a step more than most tests' policy takes.
DEFAULTS = ACT.model_copy(update={"evidence": Evidence()})
# Meta, "The Llama 3 Herd of Models" (arXiv 2407.21783), section 3.3.4: 419 unexpected interruptions in 54 days on
# 16,384 H100, eight a node. What ended a whole job is the incident that costs most.
FAILURES_A_NODE_DAY = 419 / 54 / (16_384 / 8)
DAYS_A_MONTH = 30
HEARTBEATS = (60, 300)  # seconds between two of one node: the default, and a calmer one
FLEETS = (100, 10_000, 100_000)


@dataclass(frozen=True)
class Bill:
    """One story: what it used, in the units of the price list, and how it ended."""

    counted: dict[str, float]
    end: str

    @property
    def dollars(self) -> float:
        """At the prices of the list."""
        return sum(cost(self.counted).values())


def _fails_its_diagnostics(cluster: FakeCluster) -> None:
    cluster.diagnoses[BROKEN] = Verdict.FAILED


def _never_returns(cluster: FakeCluster) -> None:
    cluster.node_returns = False


STORIES: dict[str, tuple[int, Callable[[FakeCluster], None]]] = {
    "rebooted, proven, job resumed": (79, lambda _: None),
    "rebooted in vain, spare swapped in": (79, _fails_its_diagnostics),
    "never came back, spare swapped in": (79, _never_returns),
    "spare swapped in at once": (74, lambda _: None),
    "job restarted, node left alone": (31, lambda _: None),
    "observed only": (92, lambda _: None),
}


def _name_owner(cluster: FakeCluster) -> None:
    """The dearer case: whose job it is hears of it as well."""
    job = stored_job(cluster.ports, "llama")
    assert cluster.ports.jobs.save(replace(job, owner=parse_owner("ada@example.com")))


def bill(story: str, policy: RecoveryPolicy = DEFAULTS) -> Bill:
    """Walk the story over DynamoDB and count."""
    code, prepare = STORIES[story]
    units = Units()
    with metered_table(units) as make_ports:
        cluster = FakeCluster(policy, make_ports=make_ports)
        cluster.takes_diagnostics = True
        prepare(cluster)
        _name_owner(cluster)
        units.forget()  # the world before the fault
        cluster.heard.clear()
        walked = cluster.reports(xid(code))
        return Bill(count(cluster, units), walked.end)


@contextmanager
def metered_table(units: Units) -> Iterator[Callable[[FrozenClock], Ports]]:
    """Ports over a DynamoDB whose requests are counted."""
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "test")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "test")

    def make_ports(clock: FrozenClock) -> Ports:
        ports = dynamo_ports(clock, REGION)
        UnitMeter(ports.nodes._table.client, boto3.client("dynamodb", region_name=REGION), units)  # type: ignore[attr-defined]
        return ports

    with mock_aws():
        yield make_ports


def counted_part() -> str:
    """The tables of docs/cost.md that are counted, not written."""
    bills = {story: bill(story) for story in STORIES}
    dearest = bills["rebooted in vain, spare swapped in"]
    return "\n".join([*_stories(bills), "", *_fleets(dearest), "", *_heartbeats(heartbeat(), beat())])


def _stories(bills: dict[str, Bill]) -> list[str]:
    head = "| incident | state transitions | function runs | write units | read units | cost |"
    rows = [
        f"| {story} | {b.counted['transition']:.0f} | {b.counted['function_run']:.0f} | {b.counted['table_write']:.0f} "
        f"| {b.counted['table_read']:.0f} | ${b.dollars:.6f} |"
        for story, b in bills.items()
    ]
    return [head, "|---|---:|---:|---:|---:|---:|", *rows]


def heartbeat() -> Bill:
    """One heartbeat of a healthy node over the bus, as older agents give it."""
    units = Units()
    with metered_table(units) as make_ports:
        ports = make_ports(FrozenClock())
        ports.nodes.save(node())
        units.forget()
        alive = xid(event_id="alive", family=Family.heartbeat, code="alive", verdict=Verdict.OK, component=None)
        ingest(alive, ports, DEFAULTS)
    return Bill(of_heartbeat(units), "seen")


def beat() -> Bill:
    """One heartbeat of a node that writes it down itself, and its being read by the next sweep."""
    units = Units()
    with metered_table(units) as make_ports:
        ports = make_ports(FrozenClock())
        client = ports.heartbeats._client  # type: ignore[attr-defined]
        asked = request(
            f"AROA{'X' * 17}:mi-{'0' * 17}",
            HeartbeatContent(str(UUID(int=0)), NOW.timestamp(), HEARTBEATS[0], PUBLIC_KEY),
        )
        client.update_item(**asked)
        units.forget()
        item = client.update_item(**asked)["Attributes"]
        return Bill(of_beat(units, item), "seen")


def _fleets(dearest: Bill) -> list[str]:
    rows = []
    for nodes in FLEETS:
        incidents = nodes * FAILURES_A_NODE_DAY * DAYS_A_MONTH
        rows.append(f"| {nodes:,} | {incidents:,.0f} | ${incidents * dearest.dollars:,.2f} |")
    return ["| nodes | incidents a month | their cost, each at the dearest story's |", "|---:|---:|---:|", *rows]


def _heartbeats(over_the_bus: Bill, written: Bill) -> list[str]:
    """What they cost a month, by how they are given."""
    ways = ("over the bus, by older agents", "written by the node", "with capacity bought for it")
    head = f"| nodes | a heartbeat each | {' | '.join(ways)} |"
    rows = []
    for nodes in FLEETS:
        for seconds in HEARTBEATS:
            count_a_month = nodes * DAYS_A_MONTH * 86_400 / seconds
            minutes = DAYS_A_MONTH * 1_440
            reading = nodes * minutes * cost({"table_read": written.counted["table_read"]})["table_read"]
            paid = count_a_month * cost({"table_write": written.counted["table_write"]})["table_write"] + reading
            bought = _bought(nodes / seconds)
            cells = [f"${dollars:,.2f}" for dollars in (count_a_month * over_the_bus.dollars, paid, bought)]
            rows.append(f"| {nodes:,} | {seconds} s | {' | '.join(cells)} |")
    return [head, "|---:|---:|---:|---:|---:|", *rows]


def _bought(writes_a_second: float) -> float:
    """A month of the setting heartbeat_writes_a_second, as its description says to choose it."""
    writes = math.ceil(writes_a_second * 1.2)
    hours = DAYS_A_MONTH * 24
    units = {"write_capacity": writes * hours, "read_capacity": max(5, writes // 15) * hours}
    return sum(cost(units).values())


def with_counted_part(page: str) -> str:
    """The page with its counted part replaced."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n\n{counted_part()}\n\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    COST_PAGE.write_text(with_counted_part(COST_PAGE.read_text("utf-8")), encoding="utf-8")
