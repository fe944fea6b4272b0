"""A write, a claim or a call that is refused, throttled or too late, and what must not be done as if it were not.

Each is one service and one moment, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace

from nodeheal.contract.vocabulary import Provider
from nodeheal.domain.fleet.node import Node
from nodeheal.operations.replace import has_taken, take_new_node
from nodeheal.operations.verbs import conclude
from tests.support.builders import node
from tests.support.replacement_pool import N, Pool

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
