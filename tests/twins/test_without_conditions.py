"""Every condition of a write to DynamoDB is needed: with it taken out, the test that is about it fails.

As `make mutants`, for what the table itself refuses.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import boto3
import pytest
from moto import mock_aws

from nodeheal.adapters.aws import stores
from nodeheal.adapters.aws.heartbeats import DynamoHeartbeats
from nodeheal.adapters.aws.jobs import DynamoJobNotes, DynamoJobStore
from nodeheal.adapters.aws.limits import DynamoAttemptLedger, DynamoPoolStore
from nodeheal.adapters.aws.stores import DynamoHardwareStore, DynamoIncidentStore, DynamoNodeStore, DynamoOperationStore
from tests.support.builders import FrozenClock
from tests.support.dynamo_tables import LateTable, dynamo_ports
from tests.twins import test_heartbeats, test_job_notes, test_races, test_stores
from tests.without import without

NEW, VERSION = "'attribute_not_exists(pk)'", "'version = :version'"
EVER, NEVER_MIND, EITHER_WAY = "''", "('', {})", "'attribute_exists(pk) OR attribute_not_exists(pk)'"


@dataclass(frozen=True)
class Condition:
    """A function of an adapter, the expression that is its condition, what a careless edit leaves, and its test."""

    function: Callable[..., Any]
    guard: str
    becomes: str
    proof: Callable[..., None]
    given: tuple[Any, ...] = ()


def always(condition: str) -> str:
    """The same condition, that holds whatever stands there: its values must still be used."""
    return repr(f"{condition} OR {condition.replace(' = ', ' <> ')}")


CONDITIONS = (
    Condition(
        DynamoNodeStore.save,
        "versioned(node.version)",
        NEVER_MIND,
        test_stores.test_a_save_over_a_version_that_somebody_else_replaced_changes_nothing,
    ),
    Condition(DynamoNodeStore.record, NEW, EVER, test_races.test_history_is_kept_once_with_its_first_reason),
    Condition(
        DynamoHardwareStore.save,
        "'attribute_not_exists(pk) OR reported_at < :at'",
        "'attribute_not_exists(pk) OR reported_at < :at OR reported_at >= :at'",
        test_stores.test_of_two_reports_of_a_nodes_hardware_the_newer_is_kept,
    ),
    Condition(DynamoIncidentStore.open, NEW, EITHER_WAY, test_stores.test_an_incident_opens_once),
    Condition(
        stores._node_put,
        "versioned(node.version)",
        f"({EITHER_WAY}, {{}})",
        test_stores.test_an_incident_does_not_open_over_a_node_that_changed,
    ),
    Condition(
        stores._node_put,
        "versioned(node.version)",
        f"({EITHER_WAY}, {{}})",
        test_stores.test_an_incident_is_not_finished_over_a_node_that_changed,
    ),
    Condition(DynamoIncidentStore.append, NEW, EVER, test_stores.test_an_entry_is_added_once),
    Condition(
        DynamoIncidentStore.fold,
        '"attribute_exists(pk) AND (attribute_not_exists(#times) OR #times = :before)"',
        '"attribute_exists(pk) OR #times <> :before"',
        test_stores.test_entries_that_have_changed_are_not_folded,
        ("its target was folded",),
    ),
    Condition(
        DynamoIncidentStore.advance,
        "'#turn = :before AND #state <> :over'",
        "'#state <> :over OR #turn <> :before'",
        test_stores.test_a_turn_is_taken_once,
    ),
    Condition(
        DynamoIncidentStore.advance,
        "'#turn = :before AND #state <> :over'",
        "'#turn = :before OR #state = :over'",
        test_stores.test_an_incident_that_was_handed_over_takes_no_turn,
    ),
    Condition(
        DynamoOperationStore.save,
        "versioned(operation.version)",
        NEVER_MIND,
        test_stores.test_an_operation_is_written_over_the_version_that_was_read_only,
    ),
    Condition(
        DynamoAttemptLedger._write,
        NEW,
        EVER,
        test_races.test_two_that_both_saw_the_last_attempt_do_not_both_get_it,
        (0,),
    ),
    Condition(
        DynamoAttemptLedger._write,
        VERSION,
        always("version = :version"),
        test_races.test_two_that_both_saw_the_last_attempt_do_not_both_get_it,
        (1,),
    ),
    Condition(
        DynamoPoolStore.claim, NEW, EVER, test_races.test_two_that_both_saw_the_last_slot_free_do_not_both_get_it
    ),
    Condition(
        DynamoPoolStore.release,
        "'node_id = :node'",
        always("node_id = :node"),
        test_races.test_a_slot_that_somebody_else_has_by_now_is_not_released,
    ),
    Condition(
        DynamoPoolStore.save,
        "versioned(pool.version)",
        NEVER_MIND,
        test_stores.test_a_pools_guardrails_come_back_as_they_were_saved_once,
    ),
    Condition(
        DynamoJobStore.save,
        "versioned(job.version)",
        NEVER_MIND,
        test_job_notes.test_a_job_that_somebody_else_has_changed_is_not_written_over,
    ),
    Condition(
        DynamoJobStore.save_run,
        "versioned(run.version)",
        NEVER_MIND,
        test_stores.test_a_job_and_its_runs_come_back_as_they_were_saved,
    ),
    Condition(DynamoJobNotes.note_answer, NEW, EVER, test_job_notes.test_the_first_answer_to_a_request_holds),
    Condition(
        DynamoJobNotes.hold,
        '"(attribute_not_exists(job_id) OR job_id = :job) AND (attribute_not_exists(below) OR below = :jobs)"',
        '"attribute_not_exists(job_id) OR job_id = :job OR job_id <> :job OR below = :jobs"',
        test_job_notes.test_a_directory_is_one_jobs_until_that_job_lets_go_of_it,
    ),
    Condition(
        DynamoJobNotes._lease,
        '{**written, "ConditionExpression": condition} if condition else written',
        "written",
        test_job_notes.test_a_directory_is_one_jobs_until_that_job_lets_go_of_it,
    ),
    Condition(
        DynamoJobNotes.release_directory,
        '"job_id = :job"',
        '"job_id = :job OR job_id <> :job"',
        test_job_notes.test_a_directory_is_one_jobs_until_that_job_lets_go_of_it,
    ),
    Condition(
        DynamoHeartbeats.place,
        "'attribute_not_exists(#pod) OR #pod <> :pod'",
        "'attribute_not_exists(#pod) OR #pod <> :pod OR #pod = :pod'",
        test_heartbeats.test_a_pod_that_is_placed_again_leaves_the_one_before_it_heard,
    ),
    Condition(
        DynamoHeartbeats.want,
        "'attribute_exists(#who)'",
        "'attribute_exists(#who) OR attribute_not_exists(#who)'",
        test_heartbeats.test_asking_a_machine_that_is_gone_brings_nothing_back,
    ),
)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        yield


def _prove(condition: Condition) -> None:
    clock = FrozenClock()
    ports = dynamo_ports(clock)
    wants = inspect.signature(condition.proof).parameters
    late = LateTable(boto3.client("dynamodb", region_name="us-east-1"), "state")
    known = {"ports": ports, "clock": clock, "late": late}
    condition.proof(*(known[name] for name in wants if name in known), *condition.given)


def _named(condition: Condition) -> str:
    return f"{condition.function.__qualname__}-{condition.guard}"


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("condition", CONDITIONS, ids=_named)
@pytest.mark.parametrize("is_there", [True, False], ids=["with", "without"])
def test_a_condition_is_what_makes_its_test_pass(condition: Condition, is_there: bool) -> None:
    edited: AbstractContextManager[None] = nullcontext()
    fails: AbstractContextManager[Any] = nullcontext()
    if not is_there:
        edited = without(condition.function, condition.guard, condition.becomes)
        fails = pytest.raises((AssertionError, ValueError))  # ValueError: what was read is no whole item

    with edited, fails:
        _prove(condition)


def test_every_function_that_writes_under_a_condition_is_in_the_list() -> None:
    listed = {condition.function for condition in CONDITIONS}

    for store in (
        DynamoNodeStore,
        DynamoHardwareStore,
        DynamoIncidentStore,
        DynamoOperationStore,
        DynamoAttemptLedger,
        DynamoPoolStore,
        DynamoJobStore,
        DynamoJobNotes,
        DynamoHeartbeats,
    ):
        for name, function in vars(store).items():
            if inspect.isfunction(function) and any(
                word in inspect.getsource(function)
                for word in ("versioned(", "attribute_", "ConditionExpression", " = :token", " = :node", " = :job_id")
            ):
                assert function in listed, f"{store.__name__}.{name}"
