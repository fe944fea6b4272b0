"""A job that goes on training on a node with an early warning is asked for a checkpoint now, once."""

from typing import Any

import pytest

from nodeheal.contract.vocabulary import Awaited, Family, Step
from nodeheal.domain.faults.catalog import find
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports.commands import Command
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.recovery.wait_for_news import wait_for_news
from tests.support.builders import ACT, commands_in, scheduler_in, xid
from tests.support.incident_steps import A, B, Incident
from tests.support.policies import with_policy

REMAP = 63  # a row remap lets its job finish first


def waits(it: Incident) -> Incident:
    request = it.request()
    assert (request.decision.step, request.decision.awaits) == (Step.WAIT, Awaited.JOB_END)
    wait_for_news(request, it.ports)
    return it


def asked(it: Incident) -> Any:
    return commands_in(it.ports).sent_to_all


def lines(it: Incident) -> list[str]:
    return [entry.text for entry in it.ports.incidents.history(it.id).timeline if "checkpoint" in entry.entry_id]


def test_the_whole_gang_is_asked_and_goes_on() -> None:
    it = waits(Incident(REMAP))

    assert asked(it) == [([A, B], Command("checkpoint-now", {"Job": "llama"}))]
    assert scheduler_in(it.ports).stopped == {}
    assert it.is_waiting()
    [told] = lines(it)
    assert told.startswith("llama is asked for a checkpoint now: XID 63")


def test_it_is_asked_once_however_often_the_incident_is_woken() -> None:
    it = waits(Incident(REMAP))
    ingest(xid(REMAP, event_id="again", component="GPU-other"), it.ports, ACT)
    it.resumed()

    waits(it)

    assert len(asked(it)) == 1


@pytest.mark.parametrize("changes", [{"early_warnings": ()}, {"checkpoint_seconds": 0}])
def test_policy_can_forbid_it(changes: dict[str, Any]) -> None:
    it = Incident(REMAP, policy=with_policy(**changes))

    assert asked(waits(it)) == []


def test_where_nothing_may_be_touched_nobody_is_asked() -> None:
    it = Incident(REMAP, policy=RecoveryPolicy())

    assert it.request().decision.step is Step.CLOSE
    assert asked(it) == []


def test_a_gang_that_does_not_run_is_not_asked() -> None:
    it = Incident(REMAP)
    request = it.request()
    it.task_is("STOPPED", 1, exit_code=1)

    wait_for_news(request, it.ports)

    assert asked(it) == []


def test_a_node_that_takes_no_commands_holds_nothing_up() -> None:
    it = Incident(REMAP)
    it.ports.commands.unknown_nodes.add(A)  # type: ignore[attr-defined]

    waits(it)

    assert it.is_waiting()
    assert any(f"llama could not be asked for a checkpoint: {A} takes no commands" in line for line in lines(it))


@pytest.mark.parametrize("fault", RecoveryPolicy().early_warnings)
def test_what_is_an_early_warning_by_default_lets_its_job_finish(fault: str) -> None:
    family, code = fault.split("/")
    row = find(Family(family), code, None)

    assert row is not None
    assert row.next_rung == "job_end"
