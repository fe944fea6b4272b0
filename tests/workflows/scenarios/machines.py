"""New machines: whose they are, and which of them is a successor.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from nodeheal.contract.health_event import NodeBooted
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Provider
from nodeheal.services.intake import wakeup
from tests.support.builders import xid
from tests.support.fake_cluster import BROKEN
from tests.workflows.breaking_world import BreakingWorld
from tests.workflows.scenarios.setup import RECOVERED, changes, ends_as, world, wrong_with
from tests.workflows.stories import TEMPLATE, pool

GROUP, NEW, OTHER = "asg", "i-0000000000000new1", "i-0000000000000new2"


def two_machines_come_in_one_moment() -> list[str]:
    def come(it: BreakingWorld) -> None:
        it.fuse.meanwhile["wakeup.on_node_booted", "operations.save"] = lambda: _comes_up(it, OTHER, plain=True)
        _comes_up(it, NEW)

    it = _told(come)
    return wrong_with(it, ends_as(it, *RECOVERED), _is_only(it, OTHER))


def the_new_machine_gets_work() -> list[str]:
    """A job is started there, in the moment in which it is claimed as a successor."""

    def come(it: BreakingWorld) -> None:
        works, when = changes(it, NEW, job_id="other-job"), ("wakeup.on_node_booted", "nodes.save")
        # The first save is of its boot, the second one of the claim.
        it.fuse.meanwhile[when] = lambda: it.fuse.meanwhile.update({when: works})
        _comes_up(it, NEW)

    it = _told(come)
    return [] if ("run-diagnostics", NEW) not in it.commands else ["a machine that has work was taken for a successor"]


def _told(come: Callable[[BreakingWorld], None]) -> BreakingWorld:
    """A machine of a group is to be replaced; `come`: what comes of asking the group for another, once."""
    it = world(pool(), spare=False, machine=replace(TEMPLATE, group=GROUP))
    it.plain.machines.groups.add(GROUP)  # type: ignore[attr-defined]
    left = [come]

    def once(request: StepRequest) -> None:
        if left:
            left.pop()(it)

    it.on_replace = once
    it.reports(xid(74, **it.fault))
    return it


def _comes_up(it: BreakingWorld, name: str, launched_at: datetime | None = None, *, plain: bool = False) -> None:
    it.clock.advance(60)
    machine = replace(TEMPLATE, machine_id=name, group=GROUP, launched_at=launched_at or it.clock())
    it.plain.machines.machines[name] = machine  # type: ignore[attr-defined]
    if not plain:
        it._comes_up(name, "boot-1")
        return
    fact: dict[str, Any] = {**it._fact(name, "boot-1"), "provider": Provider.ec2, "accelerators": 8}
    wakeup.on_node_booted(NodeBooted(**fact, booted_at=it.clock(), address="127.0.0.1"), it.plain)


def _is_only(it: BreakingWorld, successor: str) -> tuple[bool, str]:
    diagnosed = {name for verb, name in it.commands if verb == "run-diagnostics"} - {BROKEN}
    return diagnosed == {successor}, f"{diagnosed} were taken for the successor, which is {successor}"
