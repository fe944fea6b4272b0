"""What nobody waits for, what was not asked for, and what is not there to be had.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nodeheal.contract.vocabulary import Action
from nodeheal.services.jobs.job_nodes import claim
from nodeheal.services.operators.request_action import request_action
from tests.unit.builders import xid
from tests.workflows.breaking_world import ACTS
from tests.workflows.fake_cluster import BROKEN, SPARE
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.setup import HANDED_OVER, ends_as, world, wrong_with
from tests.workflows.walker import TIMEOUT, Error

Json = dict[str, Any]


def _dropped(arguments: Json) -> Json:
    return {**arguments["Payload"], "task_token": None}


def _called(serve: Callable[..., object], *given: object) -> Error:
    """What becomes of a state whose token nobody has: what its function raises, or its deadline."""
    try:
        serve(*given)
    except ValueError as refusal:
        return Error(type(refusal).__name__, str(refusal))
    return TIMEOUT


def a_reboot_was_asked_for_and_the_next_boot_fails() -> list[str]:
    """A person has asked for a reboot, and for no more: what the next boot shows, he is told."""
    it = world()
    it.after_reboot = [xid(74, event_id="after")]
    it.reports(request_action(BROKEN, Action.REBOOT, "it smells", it.plain))
    is_left = it.node(SPARE).job_id is None
    return wrong_with(it, ends_as(it, *HANDED_OVER), (is_left, "it was swapped, and a reboot was asked for"))


def others_have_what_is_to_stay_free() -> list[str]:
    """A job wants one node, and two that stay free for what breaks; of the three that are there another job has one."""
    it = Moment()
    it.is_written(SPARE, claimed_by="another")
    found = it.does(lambda: claim(replace(JOB, spares=2), it.ports, ACTS))
    return [f"{node.node_id} is taken, and one is left of the two that were to stay free" for node in found.nodes]
