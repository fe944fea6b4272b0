"""What is checked of a job and doubted before it is on record, and what is known of it afterwards."""

from dataclasses import replace
from typing import Any

import pytest

from nodeheal.adapters.memory.task_definitions import MemoryTaskDefinitions
from nodeheal.contract.acts import JobRecorded, SubmitJob
from nodeheal.contract.job_spec import JobSpec
from nodeheal.contract.vocabulary import NodeState
from nodeheal.domain.jobs.task_definition import Container, TaskDefinition
from nodeheal.ports import Ports
from nodeheal.services.jobs.prepare_job import Plan, _doubts_of_network, differences, file_doubts, prepare_job
from nodeheal.services.operators.operator_guardrails import pause_pool
from tests.support.acts import does
from tests.support.builders import ACT, behave_as, memory_ports, node

TRAINER = TaskDefinition("trainer:7", (Container("trainer"),))
SAVED = {"checkpoints": {"directory": "/fsx/llama"}}
IMAGE = {"image": "llama:3", **SAVED, "mounts": [{"source": "/fsx", "target": "/fsx"}]}


def spec(**said: Any) -> JobSpec:
    """Of a task definition, where nothing else is said."""
    known = {"name": "llama", "pool": "demo", "nodes": 2, **said}
    return JobSpec.model_validate(known if "image" in said else {"task_definition": "trainer", **SAVED, **known})


def world(*others: Any) -> tuple[Ports, MemoryTaskDefinitions]:
    """Three nodes, and some more."""
    ports = memory_ports()
    for each in (*(node(name, accelerators=8) for name in ("mi-a", "mi-b", "mi-c")), *others):
        ports.nodes.save(each)
    recipes = MemoryTaskDefinitions(
        {"trainer": TRAINER, "trainer:7": TRAINER, "other": replace(TRAINER, name="other:1")}
    )
    behave_as(ports, definitions=recipes)
    return ports, recipes


def submits(said: JobSpec, ports: Ports) -> None:
    """A person submits it; one that is there already stays."""
    answer = does(SubmitJob(spec=said, is_idempotent=True), ports, ACT)
    assert isinstance(answer, JobRecorded), answer


def prepared(said: JobSpec, *others: Any) -> Plan:
    ports, _ = world(*others)
    return prepare_job(said, ports, ACT)


@pytest.mark.parametrize("accelerators", [0, 4])
def test_what_a_job_takes_is_what_its_file_says_where_its_definition_says_nothing(accelerators: int) -> None:
    assert prepared(spec(accelerators=accelerators)).job.accelerators == accelerators
    assert prepared(spec(**IMAGE, accelerators=accelerators)).job.accelerators == accelerators


def test_what_was_submitted_before_registers_nothing_again() -> None:
    ports, recipes = world()
    said = spec(**IMAGE)

    for _ in range(2):
        submits(said, ports)

    assert len(recipes.registered) == 1


def test_another_definition_or_setting_is_a_difference_and_one_that_is_not_made_yet_is_none() -> None:
    ports, _ = world()
    first = prepare_job(spec(), ports, ACT).job
    other = prepare_job(spec(task_definition="other"), ports, ACT).job
    larger = prepare_job(spec(nodes=3), ports, ACT).job
    of_image = prepare_job(spec(**IMAGE), ports, ACT).job
    recorded = replace(of_image, task_definition="nodeheal-llama:1")

    # What their files were made of is the same: the fields alone say it.
    assert differences(other, replace(first, made_of=other.made_of)) == ["task_definition"]
    assert differences(larger, replace(first, made_of=larger.made_of)) == ["nodes"]
    assert differences(of_image, recorded) == []


def test_a_job_runs_in_one_cluster() -> None:
    with pytest.raises(
        ValueError, match=r"pool: the nodes of demo are in several clusters \(another of ECS, training of ECS\)"
    ):
        prepared(spec(), node("mi-d", cluster="another"))

    assert prepared(spec(), node("mi-d", cluster="another", state=NodeState.RETIRED)).job.cluster.name == "training"


@pytest.mark.parametrize(
    ("said", "doubt"),
    [
        (spec(task_definition="trainer", checkpoints=None), "checkpoints: without a directory"),
        (spec(**{**IMAGE, "mounts": [{"source": "/fsx", "target": "/fsx", "read_only": True}]}), "no mount lets"),
        (spec(**IMAGE), ""),
        (spec(), ""),
    ],
)
def test_a_file_is_doubted_whose_checkpoints_are_lost(said: JobSpec, doubt: str) -> None:
    doubts = file_doubts(said)

    assert [doubt in told for told in doubts] == [True] * bool(doubt)


@pytest.mark.parametrize(
    ("nodes", "others", "is_doubted"),
    [
        (3, (), True),
        (2, (), False),
        (3, (node("mi-d", accelerators=8),), False),
        (3, (node("mi-d", accelerators=8, is_spare=True),), False),
        (3, (node("mi-d", accelerators=8, state=NodeState.RETIRED),), True),
        (3, (node("mi-d", accelerators=8, is_spare=True, state=NodeState.RETIRED),), True),
    ],
)
def test_a_job_is_doubted_that_leaves_no_node_to_go_on_with(nodes: int, others: Any, is_doubted: bool) -> None:
    doubts = prepared(spec(nodes=nodes), *others).doubts

    assert ["it takes every node of demo" in told for told in doubts] == [True] * is_doubted


def test_a_pool_that_is_paused_is_named() -> None:
    ports, _ = world()
    pause_pool("demo", 3_600, "new switch", ports)

    doubts = prepare_job(spec(), ports, ACT).doubts

    assert ["new switch" in told and "the job waits" in told for told in doubts] == [True]


@pytest.mark.parametrize(("nodes", "is_doubted"), [(1, False), (2, True)])
def test_one_node_needs_no_network(nodes: int, is_doubted: bool) -> None:
    spec = JobSpec(name="llama", pool="demo", nodes=nodes, image="trainer:1", accelerators=8, owner="ada@example.com")

    assert bool(_doubts_of_network(spec)) is is_doubted
