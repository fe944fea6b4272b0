"""What is found out at a deadline: it must be what has happened, for the next step goes by it.

Each is one service and one moment, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace

from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import AttemptLimit, Reservation, StepRequest
from nodeheal.contract.vocabulary import Action, Awaited, Outcome, Provider, Step
from nodeheal.domain.fleet.machine import Machine
from nodeheal.domain.recovery.approval_links import Answer, Question
from nodeheal.domain.recovery.incident import TimelineEntry
from nodeheal.ports import CommandStatus, Wait
from nodeheal.services.boot_wait import BOOT, REBOOTING, note_boot
from nodeheal.services.freeze_evidence import EVIDENCE
from nodeheal.services.look_once import look_once
from nodeheal.services.recorded_answer import answer_id
from nodeheal.services.run_diagnostics import DIAGNOSTICS, request_id_of
from nodeheal.services.send_command import send_reboot
from nodeheal.services.steps import no_diagnosis_yet
from tests.unit.builders import NOW, FrozenClock, memory_ports, node
from tests.workflows.fake_cluster import BROKEN
from tests.workflows.scenarios.races import Moment
from tests.workflows.scenarios.turns import opened

_SUMMARY = '{"verdict": "OK", "failed_tests": [], "measured": {}}'


def _found(it: Moment, request: StepRequest, outcome: Outcome, said: str) -> list[str]:
    found = it.does(lambda: look_once(request, it.ports))
    if isinstance(found, StepResult) and found.outcome is outcome and said in found.reason:
        return []
    return [f"not found to be {outcome}, {said!r}: {found}"]


def _at(step: Step, request: StepRequest, **decided: object) -> StepRequest:
    decision = request.decision.model_copy(update={"step": step, **decided})
    return request.model_copy(update={"decision": decision})


# Of a reboot


def its_reboot_was_never_begun() -> list[str]:
    it, mine = opened()
    limit = AttemptLimit(group=Action.REBOOT, limit=2, window_seconds=86_400)
    counted = _at(Step.REBOOT, mine, reserve=(Reservation(scope=f"node#{BROKEN}", limit=limit),))
    return _found(it, counted, Outcome.FAILED, "was not sent")


def its_boot_came_with_the_deadline() -> list[str]:
    """The event that told of it has taken the wait, and died before it resumed anybody."""
    it, mine = opened()
    note_boot(mine, node(BROKEN), it.plain, REBOOTING)
    it.is_written(boot_id="boot-2")
    return _found(it, mine, Outcome.DONE, "back with a new boot id")


def the_sender_of_its_reboot_died() -> list[str]:
    it, mine = opened()
    it.plain.waits.save(Wait(BOOT, BROKEN, "token", mine.incident_id, NOW, boot_id="boot-1"))
    return _found(it, mine, Outcome.UNKNOWN, "may have been sent")


def its_reboot_was_asked_of_ssm_and_failed() -> list[str]:
    return _after_a_reboot(Provider.hybrid, Outcome.FAILED, "the reboot command is FAILED")


def its_reboot_was_asked_of_ec2() -> list[str]:
    return _after_a_reboot(Provider.ec2, Outcome.TIMED_OUT, "EC2 says")


def _after_a_reboot(provider: Provider, outcome: Outcome, said: str) -> list[str]:
    it, mine = opened()
    it.is_written(provider=provider)
    it.plain.machines.machines[BROKEN] = Machine(BROKEN)  # type: ignore[attr-defined]
    wait = Wait(BOOT, BROKEN, "token", mine.incident_id, NOW, boot_id="boot-1")
    send_reboot(wait, node(BROKEN, provider=provider), mine, it.plain)
    commands = it.plain.commands
    for command in commands.statuses:  # type: ignore[attr-defined]
        commands.statuses[command] = CommandStatus("FAILED")  # type: ignore[attr-defined]
    return _found(it, mine, outcome, said)


# Of a diagnosis, and of evidence


def the_sender_of_its_diagnosis_died() -> list[str]:
    return _after_a_diagnosis("", Outcome.TIMED_OUT, "the command is UNKNOWN")


def its_diagnosis_was_answered_and_its_event_lost() -> list[str]:
    return _after_a_diagnosis("command-1", Outcome.DONE, "")


def _after_a_diagnosis(command: str, outcome: Outcome, said: str) -> list[str]:
    it, mine = opened()
    asked = _at(Step.DIAGNOSE, mine)
    it.plain.waits.save(_waits(DIAGNOSTICS, asked, command))
    # Of the id of no command, too: what it says must not be asked for.
    it.plain.commands.statuses[command] = CommandStatus("SUCCEEDED", _SUMMARY)  # type: ignore[attr-defined]
    return _found(it, asked, outcome, said)


def its_evidence_does_not_come() -> list[str]:
    it, mine = opened()
    asked = _at(Step.FREEZE_EVIDENCE, mine)
    it.plain.waits.save(_waits(EVIDENCE, asked, "command-1"))
    wrong = _found(it, asked, Outcome.TIMED_OUT, "no evidence within")
    is_kept = it.plain.waits.get(EVIDENCE, request_id_of(asked)) is not None
    return [*wrong, *(["it is waited for after its deadline"] if is_kept else [])]


def _waits(kind: str, request: StepRequest, command: str) -> Wait:
    blank = no_diagnosis_yet(node(BROKEN), memory_ports(FrozenClock())).model_copy(
        update={"step": request.decision.step}
    )
    wait = Wait(kind, request_id_of(request), "token", request.incident_id, NOW, boot_id="boot-1", command_id=command)
    return replace(wait, result_json=blank.model_dump_json())


# Of an answer


def its_question_was_answered_and_nobody_was_told() -> list[str]:
    it, mine = opened()
    asked = _at(Step.WAIT, mine, awaits=Awaited.APPROVAL)
    question = Question(mine.incident_id, asked.turn)
    answer = TimelineEntry(NOW, "answer", answer_id(question), "refused by ada", Answer.refuse.value)
    it.plain.incidents.append(mine.incident_id, answer)
    return _found(it, asked, Outcome.REFUSED, "refused by ada")


def nothing_new_was_heard() -> list[str]:
    it, mine = opened()
    return _found(it, _at(Step.WAIT, mine, awaits=Awaited.BUDGET), Outcome.TIMED_OUT, "no news within")
