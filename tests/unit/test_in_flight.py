"""What a release has written, and the names under which it is called, the next release reads and answers to.

An execution that runs while nodeheal is upgraded keeps its own state machine and calls the new functions by their old
names; its incident and its job are in the table as the old functions wrote them.

tests/golden/in_flight holds what each release left behind. At a release, and at no other time:
`python -m tests.unit.test_in_flight` adds its own file.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from nodeheal import __version__
from nodeheal.adapters.aws.items import fields_of, from_item, to_item
from nodeheal.adapters.aws.timeline_items import entry_of, fields_of_entry
from nodeheal.contract import names
from nodeheal.contract.steps import DecideRequest, StepRequest
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.pool import Pool
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.policy.policy import parse_policy
from nodeheal.domain.recovery.decide import decide
from nodeheal.domain.recovery.incident import History, Incident, Turn, read_history
from nodeheal.domain.recovery.situation import Situation
from nodeheal.domain.recovery.timeline import TimelineEntry
from nodeheal.services.recovery.decide_next_step import decide_next_step
from stacks.control import DOCUMENTS
from stacks.functions import FUNCTIONS
from stacks.workflows import JOB, PARENT, Workflow
from tests.support.builders import FrozenClock, memory_ports, stored_job, xid
from tests.support.fake_cluster import BROKEN, FakeCluster

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "in_flight"
RELEASES = sorted(GOLDEN.glob("*.json"))
# The job stays: where it goes on otherwise depends on what else there is, which is not in a history.
POLICY = (
    '{"default_pool": {"mode": "act", "budget": {"max_percent": 100}}, "stable_seconds": 0, "move_job_seconds": 86400}'
)
KINDS: dict[str, type[object]] = {
    "incident": Incident,
    "entry": TimelineEntry,
    "node": Node,
    "job": Job,
    "run": Run,
    "pool": Pool,
}
Json = dict[str, Any]
T = TypeVar("T")


def left_behind() -> Json:
    """What a recovery leaves in the table, and every name that something else knows."""
    cluster = FakeCluster(parse_policy(POLICY))
    cluster.reports(xid(79, node_id=BROKEN, instance_id=BROKEN))
    history = cluster.ports.incidents.history(cluster.incident_id)
    job = stored_job(cluster.ports, "llama")
    runs = [cluster.ports.jobs.get_run("llama", number + 1) for number in range(job.current_run)]
    values: dict[str, list[object]] = {
        "incident": [history.incident],
        "entry": list(history.timeline),
        "node": [cluster.node()],
        "job": [job],
        "run": [*runs],
        "pool": [Pool("demo")],
    }
    return {
        "policy": POLICY,
        "names": spelled(),
        "items": {kind: [plain(one) for one in found] for kind, found in values.items()},
    }


def plain(value: object) -> Json:
    """As DynamoDB keeps it."""
    fields = fields_of_entry(value) if isinstance(value, TimelineEntry) else fields_of(value)
    found: Json = json.loads(json.dumps(fields))
    return found


def spelled() -> list[str]:
    """Every name that running executions, nodes, tables and people hold on to."""
    # Environment variables and metrics are deployed with the code that names them: nobody else holds on to them.
    told = {name: value for name, value in vars(names).items() if name.isupper() and name[:4] not in ("ENV_", "METR")}
    constants = {value for value in told.values() if isinstance(value, str)}
    functions = {spec.deployed_name for spec in FUNCTIONS}
    workflows = {Workflow(stem).deployed_name for stem in (PARENT, JOB)}
    keys = {names.node_pk("n"), names.incident_pk("i"), names.pool_pk("p"), names.faults_pk("p")}
    keys |= {names.job_pk("j"), names.run_sk(1), names.started_by("j", 1)}
    keys |= {names.operation_pk("o"), names.operation_sk("i"), names.attempts_sk("g"), names.line_pk("l")}
    documents = {names.document(stem) for stem in DOCUMENTS}
    return sorted(constants | functions | workflows | keys | documents)


@pytest.fixture(params=RELEASES, ids=lambda path: path.stem)
def release(request: pytest.FixtureRequest) -> Json:
    found: Json = json.loads(request.param.read_text("utf-8"))
    return found


def read(kind: type[T], items: list[Json]) -> list[T]:
    return [entry_of(to_item(item)) if kind is TimelineEntry else from_item(kind, to_item(item)) for item in items]  # type: ignore[misc]


def story(release: Json) -> History:
    [incident] = read(Incident, release["items"]["incident"])
    return read_history(incident, read(TimelineEntry, release["items"]["entry"]))


def test_there_is_a_release_to_read() -> None:
    assert RELEASES


@pytest.mark.parametrize("kind", KINDS)
def test_every_item_is_read_and_says_what_it_said(release: Json, kind: str) -> None:
    items = release["items"][kind]

    for item, value in zip(items, read(KINDS[kind], items), strict=True):
        stored = plain(value)
        if isinstance(
            value, TimelineEntry
        ):  # as JSON, which may have got fields; release 0.3.0 left marks without data
            stored["data"] = stored["data"] if item["data"] else ""
            stored["data"], item["data"] = (json.loads(entry["data"] or "{}") for entry in (stored, item))
        assert shared(stored, item) == item


def shared(found: Any, old: Any) -> Any:
    """What is found, without the fields that the old one did not have yet, at any depth."""
    if isinstance(found, dict) and isinstance(old, dict):
        return {name: shared(found.get(name), old[name]) for name in old}
    if isinstance(found, list) and isinstance(old, list) and len(found) == len(old):
        return [shared(one, other) for one, other in zip(found, old, strict=True)]
    return found


def test_a_decision_that_is_on_its_way_to_its_step_is_read_by_the_step(release: Json) -> None:
    """The running state machine hands the stored decision to a function of the new release."""
    history = story(release)

    for number, turn in enumerate(history.turns):
        request = {
            "incident_id": history.incident.incident_id,
            "turn": number,
            "decision": json.loads(turn.decision.model_dump_json()),
            "task_token": "token",
        }
        assert StepRequest.model_validate(request).decision == turn.decision


def test_an_incident_goes_on_from_wherever_the_upgrade_found_it(release: Json) -> None:
    history, policy = story(release), parse_policy(release["policy"])
    steps = [turn.decision.step for turn in history.turns]

    went_on = []
    for turns in range(len(steps)):
        told = tuple(Turn(turn.decision, turn.result) for turn in history.turns[:turns])
        now = told[-1].result.finished_at if told and told[-1].result else history.incident.opened_at
        went_on.append(decide(Situation(replace(history, turns=told), policy), now).step)

    assert went_on == steps


def test_what_was_decided_before_the_upgrade_is_answered_the_same_after_it(release: Json) -> None:
    history, policy = story(release), parse_policy(release["policy"])
    ports = memory_ports(FrozenClock(history.incident.opened_at))
    [node] = read(Node, release["items"]["node"])
    assert ports.incidents.open(history.incident, replace(node, version=0))
    for entry in history.timeline:
        ports.incidents.append(history.incident.incident_id, entry)

    for number, turn in enumerate(history.turns):
        request = DecideRequest(incident_id=history.incident.incident_id, turn=number)
        assert decide_next_step(request, ports, policy) == turn.decision


def test_no_name_that_others_hold_on_to_is_gone(release: Json) -> None:
    assert set(release["names"]) <= set(spelled())


if __name__ == "__main__":
    GOLDEN.mkdir(parents=True, exist_ok=True)
    path = GOLDEN / f"{__version__}.json"
    path.write_text(json.dumps(left_behind(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
