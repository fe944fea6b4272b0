"""The guards of tests/workflows/scenarios/deadlines.py: where each stands, and what goes wrong without it."""

from nodeheal.services import look_once
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import deadlines as when

_BY_EC2 = "is_sent_to_machine(wait)"
_HAS_LEFT = "left not in ('', node.boot_id)"
_IS_ASKED = "request.decision.awaits is Awaited.APPROVAL"

GUARDS = (
    # Of a reboot
    Guard("that a reboot was begun", look_once._at_reboot, _HAS_LEFT, when.its_reboot_was_never_begun, "True"),
    Guard("a boot that told nobody", look_once._at_reboot, _HAS_LEFT, when.its_boot_came_with_the_deadline),
    Guard("that a reboot was sent", look_once._at_reboot, "not sent_as(wait)", when.the_sender_of_its_reboot_died),
    Guard(
        "that a reboot has a command",
        look_once._at_reboot,
        _BY_EC2,
        when.its_reboot_was_asked_of_ssm_and_failed,
        "True",
    ),
    Guard(
        "that a reboot has no command",
        look_once._at_reboot,
        _BY_EC2,
        when.its_reboot_was_asked_of_ec2,
    ),
    # Of a diagnosis, and of evidence
    Guard(
        "that a diagnosis was sent",
        look_once._at_diagnosis,
        "sent_as(wait)",
        when.the_sender_of_its_diagnosis_died,
        "True",
    ),
    Guard(
        "an answer whose event was lost",
        look_once._at_diagnosis,
        "sent_as(wait)",
        when.its_diagnosis_was_answered_and_its_event_lost,
    ),
    Guard(
        "that evidence was asked for", look_once._at_evidence, "wait is None", when.its_evidence_does_not_come, "True"
    ),
    # Of an answer
    Guard("that it asks a human", look_once._at_wait, _IS_ASKED, when.its_question_was_answered_and_nobody_was_told),
    Guard("that it asks nobody", look_once._at_wait, _IS_ASKED, when.nothing_new_was_heard, "True"),
)
