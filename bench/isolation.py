"""Measures how fast many nodes that fail together are isolated.

The embedded cloud with the deployed control plane, simulated container instances without agents, and the faults put on
the bus directly. Two runs, each in a cloud of its own: with the breaker raised, until every node drains; and at the
breaker's defaults, where it must open and page once. The emulator, its functions (a process each) and this process
share the machine's cores.
"""

import json
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nodeheal.adapters.aws.policy_documents import PolicyDocuments, deployed_place
from nodeheal.contract import names
from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.simulation.latency import LATENCIES
from sandbox.client import NodeHandle, Sandbox
from tests.support.builders import xid

POOL = "storm"
NODES = 100
IDLE = ["sleep", "3600"]
ENTRIES_A_CALL = 10
GIVE_UP_SECONDS = 180.0
QUIET_SECONDS = 15.0  # nothing may happen for this long before the emails are counted
BUDGET = {"max_nodes": 1_000, "max_percent": 100}
RAISED = {"min_nodes": 1_000, "max_nodes": 1_000}


def measure_storm(latency: str) -> dict[str, float]:
    """Return the seconds from the faults until each node drains; and what happens at the breaker's defaults."""
    raised, shipped = _measure(NODES, {"breaker": RAISED}, latency), _measure(NODES, {}, latency)
    return {
        "nodes": NODES,
        **raised,
        "shipped_first_page_s": shipped["first_page_s"],
        "shipped_isolated_nodes": shipped["isolated_nodes"],
        "shipped_emails": shipped["emails"],
    }


def _measure(count: int, knobs: dict[str, Any], latency: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory, Sandbox(Path(directory) / "cloud", boot_seconds=0.1) as cloud:
        cloud.deploy()
        cloud.behave(**LATENCIES[latency].of_sandbox())
        cloud.subscribe_mailbox()
        document = {"default_pool": {"mode": "act", "budget": BUDGET}, "evidence": {"enabled": False}, **knobs}
        place = deployed_place(cloud.client("cloudformation"))
        PolicyDocuments(cloud.client("appconfig"), place).apply(json.dumps(document), "a storm is measured")
        nodes = [cloud.add_node(pool=POOL, agent=IDLE) for _ in range(count)]
        _put(cloud, nodes, family=Family.heartbeat, verdict=Verdict.OK)  # a fleet is known before it fails
        _recover_some(cloud)
        cloud.fire_schedules()  # warm functions are warm when a fault comes, and the pool has been counted
        time.sleep(QUIET_SECONDS)
        sys.stderr.write(f"{count} nodes are there; their faults are put\n")
        put_at = _put(cloud, nodes)
        if "breaker" not in knobs:
            paged = _paged(cloud, put_at)
            time.sleep(2 * QUIET_SECONDS)  # nothing else may follow
            return {"first_page_s": paged, **_came(cloud, nodes)}
        isolated = _isolated(cloud, nodes, put_at)
        return {**_spread(isolated), **_came(cloud, nodes)}


def _recover_some(cloud: Sandbox) -> None:
    """Let a few nodes fail before, each in a pool of its own: every function then has its environments, one a core."""
    pools = [f"before-{number}" for number in range(2 * (os.cpu_count() or 1))]
    first = {pool: cloud.add_node(pool=pool, agent=IDLE) for pool in pools}
    for pool, node in first.items():
        _put(cloud, [node], pool=pool)
    _isolated(cloud, list(first.values()), time.time())
    time.sleep(QUIET_SECONDS)


def _came(cloud: Sandbox, nodes: list[NodeHandle]) -> dict[str, Any]:
    ours = {node.container_instance_arn for node in nodes}
    return {"isolated_nodes": len(ours & set(_draining(cloud))), "emails": len(cloud.mails())}


def _paged(cloud: Sandbox, put_at: float) -> float:
    """Return the seconds until the first email arrived, to about a tenth."""
    while time.time() < put_at + GIVE_UP_SECONDS:
        if cloud.mails():
            return round(time.time() - put_at, 1)
        time.sleep(0.1)
    raise RuntimeError(f"the breaker paged nobody within {GIVE_UP_SECONDS:.0f} s")


def _put(cloud: Sandbox, nodes: list[NodeHandle], **what: Any) -> float:
    """Put an event of every node on the bus, a fault unless `what` says otherwise; returns the time of the first."""
    entries = [
        {
            "Source": names.AGENT_SOURCE,
            "DetailType": names.NODE_HEALTH_REPORTED,
            "Detail": cloud.voices.signed(
                node.node_id, names.NODE_HEALTH_REPORTED, _event(node, cloud.cluster, **what)
            ),
            "EventBusName": cloud.outputs["BusName"],
        }
        for node in nodes
    ]
    put_at = time.time()
    for first in range(0, len(entries), ENTRIES_A_CALL):
        cloud.client("events").put_events(Entries=entries[first : first + ENTRIES_A_CALL])
    return put_at


def _event(node: NodeHandle, cluster: str, **what: Any) -> str:
    who = {"node_id": node.node_id, "instance_id": node.node_id, "pool": POOL, "cluster": cluster, **what}
    event = xid(79, **who, event_id=uuid.uuid4().hex, observed_at=datetime.now(UTC))
    return event.model_dump_json()


def _isolated(cloud: Sandbox, nodes: list[NodeHandle], put_at: float) -> list[float]:
    """Return the seconds until each node drained, in order. To about a quarter of a second."""
    ours = {node.container_instance_arn for node in nodes}
    seen: dict[str, float] = {}
    while len(seen) < len(nodes) and time.time() < put_at + GIVE_UP_SECONDS:
        for arn in ours & set(_draining(cloud)):
            seen.setdefault(arn, time.time() - put_at)
        time.sleep(0.25)
    return sorted(seen.values())


def _draining(cloud: Sandbox) -> Iterator[str]:
    pages = cloud.client("ecs").get_paginator("list_container_instances")
    for page in pages.paginate(cluster=cloud.cluster, status="DRAINING"):
        yield from page["containerInstanceArns"]


def _spread(seconds: list[float]) -> dict[str, float]:
    if len(seconds) < 2:
        return {}
    tenths = statistics.quantiles(seconds, n=10, method="inclusive")
    return {
        "isolated_p50_s": round(tenths[4], 1),
        "isolated_p90_s": round(tenths[8], 1),
        "isolated_max_s": round(seconds[-1], 1),
    }
