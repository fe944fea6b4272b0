"""How far the stop and start of a machine has got, and who else has his hand on its switch.

Each is one service and one moment, and says what is wrong after it, which is nothing.
"""

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from nodeheal.contract.health_event import NodeBooted
from nodeheal.contract.results import StepResult
from nodeheal.contract.vocabulary import Action, NodeState, Outcome
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.machine import Power
from nodeheal.operations.engine import conclude
from nodeheal.services.intake.wakeup import on_node_booted
from tests.unit.step_functions import reboot_node
from tests.unit.test_stop_start import START, STOP, Stopping, of
from tests.workflows.fake_cluster import BROKEN

BY_HAND = "Client.UserInitiatedShutdown: User initiated (2026-03-01 03:00:00 GMT)"
BY_ITSELF = "Client.InternalError: Client error on launch"


def _stopped() -> Stopping:
    """EC2 was asked to stop it, which it has; nobody has told."""
    it = of()
    it.calls()
    return it


def started() -> Stopping:
    it = _stopped()
    it.has_stopped()
    return it


def _throttled() -> Stopping:
    """Nothing was asked of EC2 yet."""
    it = of()
    it.fails_once(Power.STOP, NotAccepted("RequestLimitExceeded"))
    with suppress(NotAccepted):
        it.calls()
    return it


def _looks(it: Stopping) -> StepResult:
    """At the deadline."""
    return conclude(it.request, it.ports)


def _asked(it: Stopping, *orders: tuple[str, Power]) -> list[str]:
    return [] if it.ordered == list(orders) else [f"EC2 was asked for {it.ordered}, and not for {list(orders)}"]


def _spent(it: Stopping, attempts: int) -> list[str]:
    return [] if it.spent == attempts else [f"{it.spent} attempts are counted, and not {attempts}"]


def its_boot_is_told_when_it_has_stopped_again() -> list[str]:
    it = started()
    it.becomes("stopped", BY_ITSELF)
    _looks(it)
    it.it.boots("boot-2")
    return [] if it.is_open else ["a boot that is over was taken for its return"]


def it_is_back_when_it_is_asked_again() -> list[str]:
    """A health event has told of its boot; the boot's own event was lost."""
    it = started()
    it.ports.nodes.save(replace(it.it.node(), boot_id="boot-2", booted_at=it.it.clock()))
    it.calls("token-2")
    return ["it is back, and waited for until the deadline"] if it.is_open else []


def it_is_back_at_its_deadline() -> list[str]:
    it = started()
    it.ports.nodes.save(replace(it.it.node(), boot_id="boot-2", booted_at=it.it.clock()))
    seen = _looks(it)
    return [] if seen.outcome is Outcome.DONE else [f"it is back: {seen.reason}"]


def a_boot_of_before_its_stop_is_told_late() -> list[str]:
    it = _stopped()
    it.it.clock.advance(300)
    it.has_stopped()
    fact = it.it._fact("boot-of-the-reboot", BROKEN)
    early = it.it.clock() - timedelta(seconds=290)
    on_node_booted(NodeBooted(**fact, booted_at=early, address="127.0.0.1", accelerators=8), it.ports)
    return [] if it.is_open else ["a boot of before its stop was taken for its return"]


def it_does_not_stay_up() -> list[str]:
    it = started()
    again = 0
    for token in ("token-2", "token-3"):
        it.becomes("stopped", BY_ITSELF)
        if _looks(it).facts:
            again += 1
            it.calls(token)
    return [] if again == 1 else [f"a machine that does not stay up was started {again} times more"]


def its_group_would_replace_it() -> list[str]:
    it = of(group="trainers")
    it.calls()
    return _asked(it)


def it_has_stopped_when_it_is_asked_again() -> list[str]:
    it = _stopped()
    it.calls("token-2")
    return _asked(it, STOP, START)


def its_stop_was_never_sent() -> list[str]:
    """The function died between the intent and the call."""
    it = of()
    it.fails_once(Power.STOP, TimeoutError("it died here"))
    with suppress(TimeoutError):
        it.calls()
    it.calls("token-2")
    return _asked(it, STOP)


def it_starts_when_it_is_asked_again() -> list[str]:
    it = started()
    it.calls("token-2")
    return _asked(it, STOP, START)


def its_stop_is_told_again() -> list[str]:
    it = started()
    it.has_stopped()
    return _asked(it, STOP, START)


def its_start_was_never_sent() -> list[str]:
    it = _stopped()
    it.fails_once(Power.START, TimeoutError("it died here"))
    with suppress(TimeoutError):
        it.has_stopped()
    it.has_stopped()
    return _asked(it, STOP, START)


def somebody_stops_it_after_its_start() -> list[str]:
    """Whoever hears of it leaves it stopped: its event, a repeated call, and the look at the deadline."""
    it = started()
    it.becomes("stopped", BY_HAND)
    it.has_stopped()
    it.becomes("stopped", BY_HAND)
    it.calls("token-2")
    it.becomes("stopped", BY_HAND)
    seen = _looks(it)
    return [*_asked(it, STOP, START), *([] if not seen.facts else ["it is to be started against somebody's will"])]


def somebody_stops_it_before_us() -> list[str]:
    it = _throttled()
    it.becomes("stopped", BY_HAND)
    it.has_stopped()
    seen = _looks(it)
    return [*_asked(it), *([] if not seen.facts else ["it is to be started against somebody's will"])]


def it_fails_to_start() -> list[str]:
    """EC2 has taken the start, and has nothing to start it on."""
    it = started()
    it.becomes("stopped", BY_ITSELF)
    it.has_stopped()
    return [*_asked(it, STOP, START), *(["its workflow was not told"] if it.is_open else [])]


def it_runs_at_its_deadline() -> list[str]:
    it = started()
    seen = _looks(it)
    return [] if seen.outcome is Outcome.TIMED_OUT else [f"it runs, and has not booted: {seen.reason}"]


def it_is_gone_after_its_stop() -> list[str]:
    it = _stopped()
    it.machines.machines.clear()
    it.calls("token-2")
    return _spent(it, 1)


def its_look_is_repeated() -> list[str]:
    """The first one has forgotten the wait."""
    it = _stopped()
    it.becomes("stopping")
    _looks(it)
    _looks(it)
    return _spent(it, 1)


def nothing_was_asked_at_its_deadline() -> list[str]:
    it = _throttled()
    _looks(it)
    return _spent(it, 0)


def a_human_takes_it_after_its_stop() -> list[str]:
    it = _stopped()
    it.ports.nodes.save(replace(it.it.node(), state=NodeState.RETIRED, open_incident=None))
    it.calls("token-2")
    return _spent(it, 1)


def a_human_takes_it_after_its_reboot() -> list[str]:
    it = of()
    _is_rebooted(it, "token-1")
    it.ports.nodes.save(replace(it.it.node(), state=NodeState.RETIRED, open_incident=None))
    _is_rebooted(it, "token-2")
    return _spent(it, 1)


def a_machine_that_was_only_rebooted_is_stopped() -> list[str]:
    """By somebody else; and then it is our own turn to stop it."""
    it = of()
    _is_rebooted(it, "token-1")
    try:
        it.has_stopped()
        it.calls("token-2")
    except ValueError as surprise:
        return [f"the wait for a reboot was taken for one of a stop: {surprise}"]
    return _asked(it, (BROKEN, Power.REBOOT), STOP)


def _is_rebooted(it: Stopping, token: str) -> None:
    """The same step as a mere reboot. Its attempt counts with those of stops."""
    decision = it.request.decision.model_copy(update={"action": Action.REBOOT})
    reboot_node(it.request.model_copy(update={"decision": decision, "task_token": token}), it.ports)
