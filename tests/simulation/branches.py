"""What an invariant says besides what its case shows: for each of these words, what must be taken away to hear them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nodeheal.adapters.memory.stores import MemoryPoolStore
from nodeheal.contract.vocabulary import Action
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Mode
from nodeheal.operations import isolate
from nodeheal.services.intake import ingest
from nodeheal.simulation.world import SimulatedPool
from tests.simulation.builders import HOUR, NVLINK
from tests.simulation.cases import ACT, one_fault, strike
from tests.simulation.taken_away import Break, Patch, cut, set_to


def _with_modes(mode: Mode, **modes: Mode) -> RecoveryPolicy:
    pool = ACT.default_pool.model_copy(update={"mode": mode, "modes": {Action[name]: it for name, it in modes.items()}})
    return ACT.model_copy(update={"default_pool": pool})


NO_REBOOT = _with_modes(Mode.act, REBOOT=Mode.observe)
ONLY_JOBS = _with_modes(Mode.observe, RESTART_WORKLOAD=Mode.act)
NO_RESTART = _with_modes(Mode.act, RESTART_WORKLOAD=Mode.observe)
ONLY_REBOOTS = _with_modes(Mode.observe, REBOOT=Mode.act)


def what_it_saw_before_its_proof_comes_late(world: SimulatedPool) -> None:
    """On the boot that was proven well afterwards: it lay in the node's spool for hours."""
    strike(world, 60)

    def late() -> None:
        node = next(iter(world.fleet.nodes.values()))
        proven = world.nodes.nodes[node.node_id]
        assert proven.healthy_since is not None
        seen_at = proven.booted_at + (proven.healthy_since - proven.booted_at) / 2
        event = world.fleet._event(node, NVLINK, world.agenda.now)
        world._report(event.model_copy(update={"observed_at": seen_at}))

    world.agenda.at(4 * HOUR, late)


def it_is_let_go_before_it_is_isolated(world: SimulatedPool) -> None:
    """Somebody writes over its record, right after the decision to isolate it."""
    strike(world, 60)
    while not any(incident.turn for incident in world.incidents.incidents.values()):
        assert world.agenda.step()
    (incident,) = world.incidents.incidents.values()
    assert world.nodes.save(replace(world.nodes.nodes[incident.node_id], open_incident=None))


def nothing_is_let_go(node: Any, *_: Any) -> Any:
    return node


def no_slot_is_given_back(patch: Patch) -> None:
    patch.setattr(MemoryPoolStore, "release", lambda *_: None)


def a_slot_is_promised_and_not_taken(patch: Patch) -> None:
    patch.setattr(MemoryPoolStore, "claim", lambda *_: True)


every_action_is_allowed = set_to(("nodeheal.domain.recovery.guardrails.mode_of", lambda *_: Mode.act))


BRANCHES: dict[str, tuple[str, Break, Callable[[SimulatedPool], None], RecoveryPolicy]] = {
    "seen before it was proven well": (
        "nothing_stale_opens_an_incident",
        cut(ingest._why_stale, "is_outlived"),
        what_it_saw_before_its_proof_comes_late,
        ACT,
    ),
    "its own not among them": ("budget_is_never_exceeded", a_slot_is_promised_and_not_taken, one_fault, ACT),
    "a slot for": ("nothing_is_left_behind", no_slot_is_given_back, one_fault, ACT),
    "names it still": (
        "nothing_is_left_behind",
        set_to(("nodeheal.services.recovery.carry_out.left_by_incident", nothing_is_let_go)),
        one_fault,
        ACT,
    ),
    "isolated for no incident": (
        "no_act_on_stale_news",
        cut(isolate._why_refused, "node.open_incident != request.incident_id"),
        it_is_let_go_before_it_is_isolated,
        ACT,
    ),
    "reboot in observe mode": ("hands_off_where_told", every_action_is_allowed, one_fault, NO_REBOOT),
    "isolate in observe mode": ("hands_off_where_told", every_action_is_allowed, one_fault, ONLY_JOBS),
}
