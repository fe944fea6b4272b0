"""What a job's neighbours have lived through speaks for the nodes that it runs on."""

from dataclasses import replace
from datetime import timedelta

import pytest

from nodeheal.contract.vocabulary import Ending, Family, IncidentState
from nodeheal.domain.jobs.checkpoint_advice import PoolExperience, advice_of
from nodeheal.domain.jobs.job import GangTask, Run
from nodeheal.domain.recovery.incident import Incident
from nodeheal.ports import Ports
from nodeheal.services.jobs.pool_failures import JOBS_READ, WINDOW, lived_beside
from tests.support.builders import NOW, memory_ports, node, stored_job, stored_node, stored_run, xid
from tests.support.goodput_runs import at, run, where
from tests.support.goodput_runs import job as young
from tests.support.jobs import ecs_job

HOUR = timedelta(hours=1)


def has_run(name: str, hours: int, ports: Ports, *, began: int | None = None, nodes: int = 2) -> None:
    """A job of the pool whose one run began so many hours ago, and ran for so many."""
    began = hours if began is None else began
    job = ecs_job(name, "demo", "training", "trainer:1", "trainer", nodes, submitted_at=NOW - began * HOUR)
    ports.jobs.save(job)
    since = NOW - began * HOUR
    tasks = tuple(GangTask(f"mi-{name}{rank}", rank, "boot-1", f"arn-{name}{rank}") for rank in range(nodes))
    ports.jobs.save_run(Run(name, 1, since, "run_job x", tasks, running_since=since, ended_at=since + hours * HOUR))


def breaks_under(
    name: str, ports: Ports, *, family: Family = Family.xid, ending: Ending | None = Ending.RECOVERED, number: int = 0
) -> None:
    incident = f"inc-{name}-{number}"
    ports.nodes.save(node(incident))
    event = xid(79, node_id=incident, instance_id=incident).model_copy(update={"family": family})
    opened = Incident(incident, incident, "demo", event, NOW - HOUR, "v", job_id=name)
    stored = stored_node(ports, incident)
    assert ports.incidents.open(opened, stored)
    ports.incidents.finish(replace(opened, state=IncidentState.CLOSED, ending=ending, closed_at=NOW))


@pytest.fixture
def ports() -> Ports:
    return memory_ports()


def test_the_running_time_of_others_is_counted_by_node_and_so_are_the_faults_of_their_nodes(ports: Ports) -> None:
    has_run("bert", 10, ports)
    has_run("gpt", 5, ports, nodes=4)
    breaks_under("bert", ports)

    assert lived_beside(ecs_job("llama", "demo", "c", "t:1", "trainer", 8), ports) == PoolExperience(2, 1, 40 * 3_600)


@pytest.mark.parametrize(("family", "ending"), [(Family.task, Ending.RECOVERED), (Family.xid, Ending.OBSERVED_ONLY)])
def test_a_programs_own_failure_and_what_was_only_observed_say_nothing_of_the_nodes(
    family: Family, ending: Ending, ports: Ports
) -> None:
    has_run("bert", 10, ports)
    breaks_under("bert", ports, family=family, ending=ending)

    assert lived_beside(ecs_job("llama", "demo", "c", "t:1", "trainer", 8), ports).failures == 0


def test_its_own_time_and_what_is_long_ago_are_not_counted(ports: Ports) -> None:
    has_run("llama", 10, ports)
    has_run("old", 10, ports, began=int(WINDOW / HOUR) + 20)

    assert lived_beside(ecs_job("llama", "demo", "c", "t:1", "trainer", 8), ports) == PoolExperience()


def test_a_job_that_never_ran_and_one_that_nobody_submitted_are_not_counted(ports: Ports) -> None:
    has_run("bert", 10, ports)
    run, gpt = stored_run(ports, "bert", 1), stored_job(ports, "bert")
    ports.jobs.save_run(replace(run, running_since=None))
    ports.jobs.save(replace(gpt, job_id="gpt", submitted_at=None, version=0))
    ports.jobs.save_run(replace(run, job_id="gpt", version=0))

    assert lived_beside(ecs_job("llama", "demo", "c", "t:1", "trainer", 8), ports) == PoolExperience()


def test_what_breaks_where_none_of_those_jobs_ran_is_not_counted(ports: Ports) -> None:
    has_run("bert", 10, ports)
    breaks_under("none-of-them", ports)

    assert lived_beside(ecs_job("llama", "demo", "c", "t:1", "trainer", 8), ports).failures == 0


def test_only_the_newest_jobs_are_read(ports: Ports) -> None:
    for number in range(JOBS_READ + 5):
        has_run(f"job-{number:02d}", 1, ports, began=number + 1)

    assert lived_beside(ecs_job("llama", "demo", "c", "t:1", "trainer", 8), ports).jobs == JOBS_READ


def test_a_young_job_is_advised_by_what_its_pool_has_lived_through() -> None:
    beside = PoolExperience(3, 2, 8 * 9_000)

    advice = advice_of(young(checkpoints=where()), [run(1, 0, 0, None)], (), at(1), beside)

    assert advice.mtbf is not None
    assert advice.mtbf.failures == 2
    assert advice.mtbf.seconds == pytest.approx(4_500, abs=1)
    assert ", including 3 other jobs of the pool:" in advice.lines[0]
    assert advice.daly_seconds == pytest.approx(637.9, abs=0.5)


def test_a_job_that_has_run_for_seconds_and_knows_nobody_gets_no_advice() -> None:
    advice = advice_of(young(checkpoints=where()), [run(1, 0, 0, None)], (), at(7))

    assert advice.daly_seconds is None
    assert advice.lines[-1] == "no advice on the checkpoint interval: nothing has failed in 7 s, which says nothing yet"
