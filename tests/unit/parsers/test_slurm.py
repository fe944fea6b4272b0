"""What squeue prints is read as jobs, and what fits into one answer of a controller."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.parsers.slurm import SlurmJob, SlurmNode, job_format, parse_jobs, parse_nodes
from nodeheal.parsers.slurm_report import CHARACTERS, pack, unpack
from tests.support.builders import xid

MARK = "|x7Yz|"
INCIDENT = "inc-20261127T035044-mi-0a-0123456789"
OURS = f"nodeheal:{INCIDENT}"
FIELDS = [
    "12_3",
    "FAILED",
    "ada",
    "1",
    "2",
    "1",
    "gpu",
    "4",
    "gpu[1-4]",
    "7",
    "1792",
    "100",
    "200",
    "300",
    "None",
    "llama",
]
JOB = SlurmJob("12", "RUNNING", "ada", True, 0, "gpu", 1, "gpu1", name="llama", submitted_at=100, started_at=200)


def printed(*rows: list[str]) -> str:
    return "".join(f"{MARK.join(row)}{MARK}\n" for row in rows)


def with_fields(**changes: str) -> list[str]:
    places = {"state": 1, "nodes": 7, "priority": 9, "status": 10, "name": 15}
    row = list(FIELDS)
    for name, value in changes.items():
        row[places[name]] = value
    return row


def test_each_field_ends_with_the_mark() -> None:
    assert job_format(MARK).split(",")[0] == f"JobArrayID:64{MARK}"
    assert job_format(MARK).count(MARK) == len(FIELDS)


def test_jobs_are_read_wherever_what_squeue_prints_is_cut() -> None:
    text = printed(with_fields(name="größe"), FIELDS).encode()

    read = [list(parse_jobs([text[at : at + size] for at in range(0, len(text), size)], MARK)) for size in range(1, 9)]

    assert read == [list(parse_jobs([text], MARK))] * 8
    assert [job.name for job in read[0]] == ["größe", "llama"]


def test_what_never_ends_is_not_kept() -> None:
    def endless() -> Iterator[bytes]:
        for taken in count():
            assert taken < 10, "it is read on and on"
            yield b"x" * 4_096

    with pytest.raises(ValueError, match="does not end with the requested mark"):
        list(parse_jobs(endless(), MARK))


def test_a_name_holds_anything_and_forges_nothing() -> None:
    name = "x\n7|RUNNING|root|1|0|1|gpu|1|node1|0|1|2|3|None|y|\n"

    jobs = list(parse_jobs([printed(with_fields(name=name), FIELDS).encode()], MARK))

    assert [(job.job_id, job.name) for job in jobs] == [("12_3", " ".join(name.split())), ("12_3", "llama")]


@pytest.mark.parametrize(
    ("state", "status", "ended", "started_at", "ended_at"),
    [
        ("FAILED", "1792", (7, 0), 200, 300),
        ("FAILED", "9", (0, 9), 200, 300),
        ("COMPLETED", "0", (0, 0), 200, 300),
        ("FAILED", "7:0", (7, 0), 200, 300),  # of Slurm 24.11
        ("FAILED", "0:9", (0, 9), 200, 300),
        ("FAILED", "7:", (None, None), 200, 300),
        ("FAILED", "unknown", (None, None), 200, 300),
        ("RUNNING", "0", (None, None), 200, None),  # its end is that of its time limit
        ("PENDING", "0", (None, None), None, None),  # its start is a forecast
    ],
)
def test_a_time_is_one_that_has_come(
    state: str, status: str, ended: tuple[int | None, int | None], started_at: int | None, ended_at: int | None
) -> None:
    [job] = parse_jobs([printed(with_fields(state=state, status=status)).encode()], MARK)

    assert (job.exit_code, job.signal) == ended
    assert (job.submitted_at, job.started_at, job.ended_at) == (100, started_at, ended_at)


@pytest.mark.parametrize("text", [printed(FIELDS[:-1]), printed(FIELDS) + "more", printed(with_fields(nodes="many"))])
def test_what_is_no_job_is_quoted(text: str) -> None:
    with pytest.raises(ValueError, match=r"printed .*which "):
        list(parse_jobs([text.encode()], MARK))


@pytest.mark.parametrize(
    ("line", "taken_by", "since"),
    [
        ("gpu1|10.0.0.1|drained|ada|100|new riser card", "a person", 100),
        ("gpu1|10.0.0.1|down*|slurm|100|Not responding", "Slurm", 100),
        (f"gpu1|10.0.0.1|draining|root|2026-11-27T08:09:49|{OURS}", "nodeheal", None),
        ("gpu1|10.0.0.1|idle|ada|100|back soon", "", 100),
        ("gpu1|10.0.0.1|down|Unknown|Unknown|none", "", None),
    ],
)
def test_a_reason_says_who_has_taken_the_node(line: str, taken_by: str, since: int | None) -> None:
    [node] = parse_nodes(f"{line}|".replace("|", MARK), MARK)

    assert (node.taken_by, node.since) == (taken_by, since)


def jobs_of(*groups: tuple[str, int]) -> list[SlurmJob]:
    return [replace(JOB, job_id=str(at), state=state, started_at=None, submitted_at=at) for state, at in groups]


def test_what_runs_and_what_has_failed_comes_before_what_waits_and_what_is_done() -> None:
    jobs = jobs_of(("COMPLETED", 9), ("PENDING", 8), ("RUNNING", 1), ("TIMEOUT", 3), ("FAILED", 4), ("RUNNING", 2))

    assert [job["job_id"] for job in unpack(pack([], jobs))["jobs"]] == ["2", "1", "4", "3", "8", "9"]


@pytest.mark.parametrize(("nodes", "jobs"), [(0, 5_000), (5_000, 0), (5_000, 5_000), (5, 5_000)])
def test_an_answer_fits_into_what_ssm_hands_on_and_counts_the_rest(nodes: int, jobs: int) -> None:
    out = SlurmNode("gpu-node-0001", "10.0.0.1", "drained", "ü" * 500, "ada", 100)

    answer = pack([(out, ["10.0.0.1"])] * nodes, [replace(JOB, name="ü" * 64)] * jobs)

    told: dict[str, Any] = unpack(json.loads(json.dumps(answer)))
    assert len(json.dumps(answer)) < 24_000
    assert len(told["nodes"]) + told["more_nodes"] == nodes
    assert len(told["jobs"]) + told["more_jobs"] == jobs
    assert (bool(told["nodes"]), bool(told["jobs"])) == (bool(nodes), bool(jobs))
    assert {len(job["name"]) for job in told["jobs"]} <= {64}
    assert {len(node["reason"]) for node in told["nodes"]} <= {200}
    if nodes == 5:
        assert told["more_nodes"] == 0
    assert len(json.dumps(answer)) > CHARACTERS // 3


BY_SLURM = [
    "Not responding",
    "Prolog error",
    "batch job complete failure",
    "Kill task failed",
    "Kill task failed (JobId=12 StepId=0)",
    "reboot requested : reboot issued : reboot timed out",
    "Reboot ASAP : reboot issued : reboot timed out",
    "Not responding : Node unexpectedly rebooted",
    "Job step not running (JobId=12 StepId=batch)",
    "Low RealMemory (reported:1 < 100.00% of configured:2), gres/gpu count reported lower than configured (7 < 8)",
    "gres/gpu:h100 count too low (7 < 8), Low socket*core*thread count, Low CPUs, Low TmpDisk, CoreSpec differ",
    "gres/gpu count changed and jobs are using them (8 != 7)",
    "gres/gpu type changed and jobs are using them : Not responding",
    "gres/gpu type (a100) reported but not configured",
]
BY_NODEHEAL = [OURS, f"{OURS} : Not responding", f"{OURS} : reboot issued : reboot timed out"]
BY_A_PERSON = [
    "Action:Replace",
    "Action:Replace : Not responding",
    "new driver, ada : reboot issued : reboot timed out",
    "Not responding to ssh, ada",
    "Prolog error? ada looks",
    "Low voltage, ada",
    "reboot issued by ada",
    "Low RealMemory ada swaps DIMM",
    "Low RealMemory (reported:1 < 100.00% of configured:2), ada swaps a DIMM",
    "gres/gpu count is wrong, ada waits for vendor",
    "Low CPUs, ",
    "nodeheal: ada keeps this node out until the vendor came",
    "nodeheal:",
    f"{OURS} ADA: do not resume",
    f"{OURS} : ada, too",
    f"{OURS.upper()}",
    f" {OURS}-2",
]


@pytest.mark.parametrize("reason", [*BY_SLURM, *BY_A_PERSON, *BY_NODEHEAL])
def test_a_reason_is_slurms_own_or_ours_only_if_all_of_it_is(reason: str) -> None:
    [node] = parse_nodes(f"node1|10.0.0.1|down*|root|100|{reason}|".replace("|", MARK), MARK)

    assert node.is_by_person is (reason in BY_A_PERSON)
    assert node.is_ours is (reason in BY_NODEHEAL)
    assert [node.is_ours_for_another(one) for one in (INCIDENT, "inc-2")] == [False, node.is_ours]


def test_the_reason_of_every_incident_is_known_as_ours() -> None:
    for node_id in ("i-0a1b2c3d4e5f67890", "mi-0a1b2c3d4e5f67890", "n1", "a-node.of/theirs-with-a-name-of-its-own"):
        incident = incident_id_of(xid(node_id=node_id, instance_id=node_id))

        assert SlurmNode("gpu1", "10.0.0.1", "drained", f"nodeheal:{incident}").incident == incident


def test_a_node_that_the_controller_has_not_heard_yet_is_nobodys() -> None:
    [node] = parse_nodes("node1|10.0.0.1|unknown*|Unknown|Unknown|none|".replace("|", MARK), MARK)

    assert (node.is_by_person, node.is_in_service) == (False, True)


@pytest.mark.parametrize(
    ("state", "priority", "is_held"), [("PENDING", "0", True), ("PENDING", "7", False), ("RUNNING", "0", False)]
)
def test_a_job_that_waits_without_a_priority_is_held(state: str, priority: str, is_held: bool) -> None:
    [job] = parse_jobs([printed(with_fields(state=state, priority=priority)).encode()], MARK)

    assert job.is_held is is_held
