"""Who may write each kind of item by the synthesized policies, and who reads it to act.

`python -m tests.infrastructure.test_item_writers` writes the golden table. Read the diff: a person in it writes what
the control plane believes.
"""

import ast
import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from nodeheal.contract import names
from stacks.functions import FUNCTIONS
from stacks.workflows import JOB, PARENT
from tests.infrastructure.needs import actions_of, words_of
from tests.infrastructure.reach import calls_of
from tests.infrastructure.roles import BEATS, DOCTOR, JOBS, ME, NODE, OPERATOR, TABLE, VIEWER, Request, may

GOLDEN = Path(__file__).parents[1] / "golden" / "item_writers.csv"
COLUMNS = ("kind", "persons", "nodes", "workflows", "functions", "read_by")
PERSONS = (VIEWER, OPERATOR, JOBS, DOCTOR)
WRITES = ("dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem", "dynamodb:BatchWriteItem")


@dataclass(frozen=True)
class Kind:
    """A kind of item: an example of its partition key, and the names of nodeheal.contract.names that its readers and
    writers mention. `listed`: what those mention beside INDEX that find it by the index.
    """

    key: str
    marks: frozenset[str]
    listed: str = ""
    table: str = TABLE


def kind(key: str, *marks: str, listed: str = "", table: str = TABLE) -> Kind:
    return Kind(key, frozenset(marks), listed, table)


KINDS: Mapping[str, Kind] = {
    "node": kind("node#i-1", "NODE_SK", "UNENROLLED_PK", listed="node_pk"),
    "fault": kind("node#i-1", "FAULT_PREFIX", "faults_pk"),
    "history": kind("node#i-1", "HISTORY_PREFIX"),
    "hardware": kind("node#i-1", "HARDWARE_SK"),
    "reports": kind("node#i-1", "REPORTS_PREFIX"),
    "attempts of a node": kind("node#i-1", "ATTEMPTS_PREFIX", "attempts_sk"),
    "attempts of an accelerator": kind("accelerator#1", "ATTEMPTS_PREFIX", "attempts_sk"),
    "attempts of a job": kind("job#llama", "ATTEMPTS_PREFIX", "attempts_sk"),
    "incident": kind("incident#inc-1", "INCIDENT_SK", listed="incident_pk"),
    "timeline": kind("incident#inc-1", "TIMELINE_PREFIX"),
    "pool": kind("pool#train", "POOL_SK"),
    "slot": kind("pool#train", "SLOT_PREFIX"),
    "pause": kind(names.PAUSES_PK, "PAUSES_PK", "node_pause_sk", "pool_pause_sk"),
    "list of pools": kind(names.POOLS_PK, "POOLS_PK"),
    "operation": kind("op#node#i-1", "OPERATIONS_PREFIX", "operation_pk", "operation_sk", "line_pk"),
    "job": kind("job#llama", "JOB_SK", listed="job_pk"),
    "run": kind("job#llama", "RUN_PREFIX", "run_sk"),
    "answer to a check": kind("job#llama", "CHECK_PREFIX"),
    "finding about a run": kind("job#llama", "FINDING_PREFIX", "findings_prefix"),
    "hang": kind("hang#llama/1", "HANG_SK", "hang_pk"),
    "lease": kind("lease#/fsx", "LEASE_SK", "lease_pk"),
    "place of the sweep": kind(names.SWEEP_PK, "SWEEP_SK"),
    "mark of the records": kind(names.SWEEP_PK, "EPOCH_SK"),
    "mark outside the table": kind(names.EPOCH_KEY, "EPOCH_KEY", table=BEATS),
    "policy": kind(names.POLICY_PK, "POLICY_PK", "POLICY_SK"),
    "sent message": kind("notification#1"),
    "heartbeat": kind(ME, "HEARTBEAT_AT", "HEARTBEAT_WANTED", table=BEATS),
    "signing key": kind(ME, "HEARTBEAT_KEY_PREFIX", table=BEATS),
    "heartbeat and key of another node": kind(f"{ME}-other", table=BEATS),
    "act": kind(names.ACTS_PK, "ACTS_PK"),
    "anything else": kind("made-up#1"),
}
# Partitions of several kinds: who mentions only these has said nothing of the kind.
_SHARED = {"node_pk", "incident_pk", "pool_pk", "job_pk", "SWEEP_PK"}
# What a person may write although functions act by it, and why.
TRUSTED_OF_PERSONS: Mapping[tuple[str, str], str] = {
    (OPERATOR, "pause"): "a brake must work when functions do not, and an item that cannot be read keeps it on",
}


def kinds_of(call: str) -> frozenset[str]:
    """The kinds of items that a call on a port is about."""
    mentioned = words_of(call)
    found = {
        name
        for name, one in KINDS.items()
        if one.marks & mentioned
        or (one.listed and {"INDEX", one.listed} <= mentioned and "FAULT_PREFIX" not in mentioned)
    }
    apart = {"notifier": {"sent message"}, "acts": {"act"}}
    return frozenset(found or apart.get(call.partition(".")[0], set()))


@cache
def functions_that(stem: str) -> tuple[frozenset[str], frozenset[str]]:
    """(kinds that the function's code reads, kinds that it writes)."""
    read: set[str] = set()
    written: set[str] = set()
    for call in calls_of(stem):
        actions = actions_of(call)
        written |= kinds_of(call) if actions & set(WRITES) else set()
        read |= kinds_of(call) if actions & {"dynamodb:GetItem", "dynamodb:Query", "dynamodb:Scan"} else set()
    return frozenset(read), frozenset(written)


def may_write(role: str, one: Kind) -> bool:
    asked = (Request(action, one.table, {"dynamodb:LeadingKeys": [one.key]}) for action in WRITES)
    return any(may(role, request) for request in asked)


@cache
def rows() -> tuple[dict[str, str], ...]:
    """The table, as the policies and the code have it."""
    return tuple(_row(name, one) for name, one in KINDS.items())


def _row(name: str, one: Kind) -> dict[str, str]:
    stems = [spec.stem for spec in FUNCTIONS]
    found = {
        "kind": [name],
        "persons": [role for role in PERSONS if may_write(role, one)],
        "nodes": [NODE] if may_write(NODE, one) else [],
        "workflows": [role for role in (PARENT, JOB) if may_write(role, one)],
        "functions": [stem for stem in stems if name in functions_that(stem)[1] and may_write(stem, one)],
        "read_by": [stem for stem in stems if name in functions_that(stem)[0]],
    }
    return {column: " ".join(found[column]) for column in COLUMNS}


def written() -> str:
    out = io.StringIO()
    table = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    table.writeheader()
    table.writerows(rows())
    return out.getvalue()


def test_who_writes_and_who_reads_each_kind_is_as_committed() -> None:
    assert GOLDEN.read_text("utf-8") == written()


def test_no_person_writes_what_the_control_plane_acts_by() -> None:
    trusted = {(person, row["kind"]) for row in rows() if row["read_by"] for person in row["persons"].split()}

    assert trusted == set(TRUSTED_OF_PERSONS)


def test_who_trains_and_who_looks_writes_no_item_at_all() -> None:
    """Neither an item nor, with it, a place in a partition of the index, which other items' lists are read from."""
    assert {person for row in rows() for person in row["persons"].split()} == {OPERATOR}
    assert [row["persons"] for row in rows() if row["kind"] == "anything else"] == [""]


def test_a_node_writes_its_own_heartbeat_and_key_and_nothing_else() -> None:
    assert [row["kind"] for row in rows() if row["nodes"]] == ["heartbeat", "signing key"]


def names_of_keys() -> Iterator[str]:
    """Every constant and function of the names that spells a key of the table."""
    source = ast.parse(Path(names.__file__).read_text("utf-8"))
    for one in source.body:
        if isinstance(one, ast.Assign):
            yield from (t.id for t in one.targets if isinstance(t, ast.Name) and t.id.endswith(("_PK", "_SK")))
        elif isinstance(one, ast.FunctionDef) and one.name.endswith(("_pk", "_sk")):
            yield one.name


@pytest.mark.parametrize("name", sorted(names_of_keys()))
def test_every_key_of_the_table_is_of_a_kind(name: str) -> None:
    assert name in _SHARED or any(name in one.marks for one in KINDS.values())


if __name__ == "__main__":
    GOLDEN.write_text(written(), "utf-8")
