"""A write, a claim or a call that is refused, throttled or too late, and what must not be done as if it were not.

Each is one service and one moment, and says what is wrong after it, which is nothing.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Any

from nodeheal.contract.steps import Reservation
from nodeheal.contract.vocabulary import Action, NodeState, Provider
from nodeheal.domain.errors import PlacementRefused
from nodeheal.domain.fleet.node import Node
from nodeheal.operations.engine import conclude
from nodeheal.operations.replace import has_taken, take_new_node
from nodeheal.services.jobs.start_gang import record_run, start_ranks
from nodeheal.services.recovery.reserve_attempt import why_no_attempt
from tests.unit.builders import commands_in, node, scheduler_in
from tests.unit.step_functions import reboot_node
from tests.unit.test_replacement import N, Pool
from tests.workflows.breaking_world import ACTS
from tests.workflows.fake_cluster import BROKEN, PEER
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.turns import opened

# Waits


# Commands


# New machines


def another_incident_has_the_new_machine() -> list[str]:
    """It was taken between the look at it and the claim."""
    it = Pool()
    it.replaces()
    it.group_makes()
    new = node(N, provider=Provider.ec2)
    it.ports.nodes.save(replace(new, open_incident="inc-of-another"))
    fresh = it.ports.nodes.get

    def lags(node_id: str) -> Node | None:
        if node_id != N:
            return fresh(node_id)
        it.ports.nodes.get = fresh  # type: ignore[method-assign]
        return new

    operation = it.operation()
    it.ports.nodes.get = lags  # type: ignore[method-assign]
    taken = has_taken(take_new_node(operation, new, it.ports), N)
    return ["the node of another incident is its replacement node"] if taken else []


def a_machine_that_has_served_is_free() -> list[str]:
    """Its group made it since, and it has rebooted: whose it is was settled when it came up first."""
    it = Pool()
    it.replaces()
    it.group_makes()
    old = node(N, provider=Provider.ec2, past_boots=("boot-0",))
    it.ports.nodes.save(old)
    taken = has_taken(take_new_node(it.operation(), old, it.ports), N)
    return ["a node that has served is taken for new"] if taken else []


def another_group_makes_a_machine() -> list[str]:
    it = Pool()
    it.replaces()
    it.machines.machines[N] = replace(it.kind, machine_id=N, group="another", launched_at=it.clock())
    it.ports.nodes.save(node(N, provider=Provider.ec2))
    conclude(it.request(), it.ports)
    return [] if it.node(N).open_incident is None else ["a machine of another group is taken"]


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
    sent = commands_in(it.plain).sent
    return [f"{one.document} for {one.node_id}, which another incident has isolated" for one in sent]


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
