"""A write, a claim or a call that is refused, throttled or too late, and what must not be done as if it were not.

Each is one service and one moment, and says what is wrong after it, which is nothing.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Any

from nodeheal.contract.names import group_line
from nodeheal.contract.steps import Reservation
from nodeheal.contract.vocabulary import Action, NodeState, Provider
from nodeheal.domain.errors import MachineRefused, PlacementRefused
from nodeheal.domain.fleet.machine import GiveBack, Machine
from nodeheal.operations.steps import reboot_node
from nodeheal.services.jobs.start_gang import record_run, start_ranks
from nodeheal.services.recovery.new_machine import NEW_MACHINE, settle
from nodeheal.services.recovery.replacement_slots import REPLACEMENT
from nodeheal.services.recovery.reserve_attempt import why_no_attempt
from nodeheal.services.recovery.stand_in import claim_new
from tests.unit.builders import node, scheduler_in
from tests.unit.test_replacement import N, Pool
from tests.workflows.breaking_world import ACTS
from tests.workflows.fake_cluster import BROKEN, PEER
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.turns import opened, waiting
from tests.workflows.stories import NEW

# Waits


# Commands


# New machines


def another_incident_has_the_new_machine() -> list[str]:
    it, mine = opened()
    new = node(NEW, open_incident="inc-of-another")
    it.plain.nodes.save(new)
    return ["the node of another incident is its stand-in"] if it.does(lambda: claim_new(mine, new, it.ports)) else []


def another_incident_takes_the_machine_that_was_launched() -> list[str]:
    it, mine = opened()
    it.is_written(state=NodeState.RECOVERING)
    new = node(NEW, provider=Provider.ec2, open_incident="inc-of-another")
    it.plain.nodes.save(new)
    wait = waiting(REPLACEMENT, mine, command_id=NEW, twin=(NEW_MACHINE, NEW))
    it.plain.waits.save(wait)
    it.does(lambda: settle(wait, new, it.ports))
    resumed = it.plain.workflows.resumed  # type: ignore[attr-defined]
    return ["a replacement is done with a node that another incident has"] if resumed else []


def a_machine_that_has_served_is_free() -> list[str]:
    """Its group made it since, and it has rebooted: whose it is was settled when it came up first."""
    it, mine = opened()
    it.is_written(state=NodeState.RECOVERING)
    old = node(NEW, provider=Provider.ec2, past_boots=("boot-0",))
    it.plain.nodes.save(old)
    wait = waiting(REPLACEMENT, mine, line=(group_line("asg"), "1"))
    it.plain.waits.save(wait)
    return ["a node that has served is taken for new"] if it.does(lambda: settle(wait, old, it.ports)) else []


def another_group_makes_a_machine() -> list[str]:
    it = Pool()
    it.replaces()
    it.machines.machines[N] = replace(it.kind, machine_id=N, group="another", launched_at=it.clock())
    it.ports.nodes.save(node(N, provider=Provider.ec2))
    it.replaces(token="again")
    return [] if it.node(N).open_incident is None else ["a machine of another group is taken"]


def ec2_will_not_take_it_from_its_group() -> list[str]:
    return _is_kept(Pool())


def ec2_will_not_make_room_for_its_successor() -> list[str]:
    return _is_kept(Pool(group="", template="lt-1", terminate_first=True))


def _is_kept(it: Pool) -> list[str]:
    def refuses(machine: Machine, how: GiveBack) -> None:
        raise MachineRefused("termination protection is on")

    it.machines.give_back = refuses
    it.replaces()
    told = it.ports.incidents.history(it.incident()).timeline
    return [f"people read: {e.text}" for e in told if "marked unhealthy" in e.text or "terminated" in e.text]


# Attempts


def one_of_two_limits_is_reached() -> list[str]:
    """What the other one has granted is there again."""
    it, mine = opened()
    limit = ACTS.limits[Action.REBOOT]
    for number in range(limit.limit):
        it.plain.attempts.reserve("rack#r1", f"inc-of-another/{number}", limit)
    both = (Reservation(scope=f"node#{BROKEN}", limit=limit), Reservation(scope="rack#r1", limit=limit))
    asks = mine.model_copy(update={"decision": mine.decision.model_copy(update={"reserve": both})})
    it.does(lambda: why_no_attempt(asks, it.ports))
    spent = it.plain.attempts.spent(f"node#{BROKEN}", limit)[limit.group]
    return [f"{spent} attempts are spent on what was never done"] if spent else []


def it_serves_when_its_replacement_is_asked_for() -> list[str]:
    """It holds a slot, and there is an attempt."""
    it = Pool()
    it.ports.nodes.save(replace(it.node(), state=NodeState.HEALTHY))
    it.replaces()
    return [f"{name} was given up, and serves" for name, _ in it.given_back]


def another_has_isolated_it_when_its_reboot_is_asked_for() -> list[str]:
    it, mine = opened()
    it.is_written(state=NodeState.ISOLATED, open_incident="inc-of-another")
    it.plain.pools.claim("demo", BROKEN, 1)
    reserve = (Reservation(scope=f"node#{BROKEN}", limit=ACTS.limits[Action.REBOOT]),)
    decision = mine.decision.model_copy(update={"reserve": reserve})
    it.does(lambda: reboot_node(mine.model_copy(update={"decision": decision, "task_token": "token"}), it.ports))
    sent = it.plain.commands.sent  # type: ignore[attr-defined]
    return [f"{verb} of {name}, which another incident has isolated" for verb, name, _ in sent]


# Ranks


def its_second_rank_is_refused() -> list[str]:
    it = Moment()
    job = replace(JOB, nodes=2)
    it.plain.jobs.save(job)
    run = record_run(replace(job, version=1), [node(BROKEN), node(PEER)], "mine", it.plain)
    starts = scheduler_in(it.plain).start_rank

    def refuses(job: Any, run: Any, task: Any, environment: Any) -> str:
        if task.rank:
            raise PlacementRefused("RESOURCE:MEMORY")
        return str(starts(job, run, task, environment))

    scheduler_in(it.plain).start_rank = refuses
    with suppress(PlacementRefused):
        start_ranks(replace(job, version=2), run, it.plain, ACTS)
    stopped = scheduler_in(it.plain).stopped
    return [] if stopped else ["its first rank holds its accelerators, and waits for the others for ever"]
