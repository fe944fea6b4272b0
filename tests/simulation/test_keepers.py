"""The two that nodeheal is compared with: what they do, how fast, and that they meet the same faults."""

from dataclasses import replace
from datetime import timedelta
from math import exp

import pytest

from bench.fleet.keepers import ByHand, Keeper, PollAndWait
from nodeheal.contract.vocabulary import Provider
from nodeheal.simulation.agenda import EPOCH
from nodeheal.simulation.fault_schedule import ScheduledFault, fault_schedule
from nodeheal.simulation.faults import SimulatedFault
from nodeheal.simulation.ground_truth import GroundTruth
from nodeheal.simulation.latency import LATENCIES
from nodeheal.simulation.setting import DAY, OperatorTimes, Setting, Work
from nodeheal.simulation.world import SimulatedPool
from tests.simulation.builders import HOUR, OFF_THE_BUS, PAGE_SECONDS, POWER, quiet

QUIET = quiet(6, 4, operators=OperatorTimes(page_seconds=PAGE_SECONDS, repair_seconds=2 * DAY, spread=0.0))


def struck(keeper: Keeper, fault: SimulatedFault, number: int = 0, at: float = 10 * HOUR) -> GroundTruth:
    """The node that will get this fault then, after it has been let run until shortly before."""
    node = list(keeper.fleet.nodes.values())[number]
    keeper.agenda.at(at, lambda: keeper.fleet._break(node, fault))
    return node


def restarted_after(keeper: Keeper, at: float = 10 * HOUR) -> float:
    """Seconds from the fault until all ranks of the next run have run; the job has run once before."""
    keeper.agenda.run(at + 60)
    (gang,) = keeper._gangs.values()
    while gang.run < 2 or gang.running_since is None:
        assert keeper.agenda.step(), "it was never restarted"
    return keeper.agenda.now - at


def test_a_human_restarts_the_job_elsewhere_after_the_time_that_a_page_takes() -> None:
    keeper = ByHand(QUIET)
    node = struck(keeper, SimulatedFault(OFF_THE_BUS, "hardware"))

    took = restarted_after(keeper)

    assert PAGE_SECONDS < took < PAGE_SECONDS + 400
    assert node not in next(iter(keeper.crews.values())).nodes
    assert keeper.pages >= 1


def test_who_polls_finds_a_fault_within_its_interval_and_waits_for_the_node() -> None:
    keeper = PollAndWait(QUIET, poll_seconds=60.0)
    node = struck(keeper, SimulatedFault(OFF_THE_BUS, "reboot"))
    keeper.agenda.run(10 * HOUR + 75)  # a rank ends within seconds, and a look comes within 60

    assert node.node_id in keeper.away
    took = restarted_after(keeper)

    assert took < 60 + 300 * exp(4 * 0.4) + 200  # one look, a boot, a start
    assert node in next(iter(keeper.crews.values())).nodes


@pytest.mark.parametrize(("wait_seconds", "least", "most"), [(1_800.0, 1_800.0, 2_200.0), (0.0, 0.0, 800.0)])
def test_who_polls_takes_another_node_when_it_has_waited_long_enough(
    wait_seconds: float, least: float, most: float
) -> None:
    keeper = PollAndWait(QUIET, wait_seconds=wait_seconds)
    node = struck(keeper, SimulatedFault(POWER, "hardware"))

    took = restarted_after(keeper)

    assert least < took < most
    assert node not in next(iter(keeper.crews.values())).nodes


@pytest.mark.parametrize("kind", [ByHand, PollAndWait])
def test_what_a_reboot_does_not_mend_is_repaired_by_people_days_later(kind: type[Keeper]) -> None:
    keeper = kind(QUIET)
    node = struck(keeper, SimulatedFault(POWER, "hardware"))

    keeper.agenda.run(10 * HOUR + 1.9 * DAY)
    was_away = node.node_id in keeper.away
    keeper.agenda.run(10 * HOUR + 2.2 * DAY)

    assert was_away
    assert node.is_up
    assert keeper.is_fit(node)


@pytest.mark.parametrize("kind", [ByHand, PollAndWait])
def test_all_of_a_jobs_time_is_accounted_for(kind: type[Keeper]) -> None:
    keeper = kind(replace(QUIET, faults_a_node_day=0.2))

    keeper.agenda.run(5 * DAY)

    (gang,) = keeper._gangs.values()
    assert keeper.fleet.faults > 2
    assert sum(keeper.so_far().values()) == pytest.approx(5 * DAY - gang.began_at)
    assert all(seconds >= 0 for seconds in keeper.so_far().values())


def test_a_job_that_is_done_makes_room_for_the_next() -> None:
    keeper = ByHand(replace(QUIET, work=Work(share=0.7, gang_nodes=4, days=0.2)))

    keeper.agenda.run(5 * DAY)

    assert keeper._submitted > 5
    assert len(keeper.crews) <= 1


def test_all_of_them_meet_the_same_faults_as_nodeheal() -> None:
    """Planned ones: those that were met are the plan's, in its order, on its places."""
    setting = replace(QUIET, nodes=40, faults_a_node_day=0.05, work=Work(share=0.8, gang_nodes=4, days=100))
    planned = list(fault_schedule(setting))
    met: dict[str, list[tuple[float, str, str]]] = {}
    for name in ("nodeheal", "by hand", "poll"):
        keeper = (
            SimulatedPool(setting)
            if name == "nodeheal"
            else ByHand(setting)
            if name == "by hand"
            else PollAndWait(setting)
        )
        heard = met[name] = []
        told = keeper.fleet._trace.tell

        def tell(kind: str, about: str, text: str = "", told=told, heard=heard, keeper=keeper) -> None:  # type: ignore[no-untyped-def]
            if kind == "fault":
                heard.append((keeper.agenda.now, about, text))
            told(kind, about, text)

        keeper.fleet._trace.tell = tell  # type: ignore[method-assign]
        keeper.agenda.run(setting.days * DAY)

    assert len(planned) > 5
    assert {at for one in met.values() for at, _, _ in one} <= {strike.at for strike in planned}
    common = set(met["nodeheal"]) & set(met["by hand"]) & set(met["poll"])
    assert len(common) >= 0.8 * len(planned)


def test_at_both_latencies_a_fleet_meets_the_same_faults() -> None:
    setting = Setting(nodes=60, days=10, seed=3, faults_a_node_day=0.03, is_strict=False)
    planned = {str(EPOCH + timedelta(seconds=strike.at))[:19] for strike in fault_schedule(setting)}
    met = []
    for latency in LATENCIES.values():
        lines: list[str] = []
        world = SimulatedPool(replace(setting, latency=latency), lines.append)
        world.advance(setting.days * DAY)
        met.append({line for line in lines if line[23:].split()[0] == "fault"})

    assert all({line[:19] for line in one} <= planned for one in met)
    assert len(met[0] & met[1]) >= 0.9 * max(map(len, met)) > 9


def test_a_machine_that_was_launched_meets_the_faults_of_the_one_that_it_replaces() -> None:
    fleet = SimulatedPool(replace(QUIET, provider=Provider.ec2)).fleet
    gone, other = list(fleet.nodes)[:2]
    strike = ScheduledFault(0.0, 0.0, SimulatedFault(OFF_THE_BUS, "hardware"), is_wide=False)
    fleet.launch("i-0launched", 0.0)
    fleet.come_up(fleet.nodes["i-0launched"])
    fleet.terminate(gone)

    fleet._meet(strike)

    assert fleet.nodes["i-0launched"].fault == strike.fault
    assert fleet.nodes[other].fault is None


def test_another_seed_plans_other_faults() -> None:
    setting = replace(QUIET, faults_a_node_day=1.0)

    assert list(fault_schedule(setting)) == list(fault_schedule(setting))
    assert list(fault_schedule(setting)) != list(fault_schedule(replace(setting, seed=2)))
