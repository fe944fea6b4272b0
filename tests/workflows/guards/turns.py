"""The guards of tests/workflows/scenarios/turns.py: where each stands, and what goes wrong without it."""

from nodeheal.services import (
    answer_approval,
    boot_wait,
    hear_silence,
    late_machine,
    look_once,
    new_machine,
    replace_machine,
    stop_start,
)
from tests.workflows.guards.guard import Guard, taken_for_saved
from tests.workflows.scenarios import turns as when

_INCIDENT = "wait.incident_id != request.incident_id"
_TURN = "StepRequest.model_validate_json(wait.request_json).turn == request.turn"
_HEARD = "known == node or ports.nodes.save(known)"

GUARDS = (
    Guard("whose boot is looked at", look_once._at_reboot, _INCIDENT, when.another_incident_waits_for_a_boot),
    Guard(
        "whose wait for a gang is forgotten",
        look_once._forget_gang,
        "wait.incident_id == request.incident_id",
        when.another_incident_waits_for_the_gang,
        "True",
    ),
    Guard("whose replacement is under way", replace_machine.wait_of, _INCIDENT, when.another_incident_replaces_it),
    Guard(
        "of which turn a replacement is", replace_machine.wait_of, _TURN, when.an_earlier_turn_has_replaced_it, "True"
    ),
    Guard("who has stopped a machine", stop_start._wait_of, _INCIDENT, when.another_incident_has_stopped_it),
    Guard(
        "in which turn a machine was stopped", stop_start._wait_of, _TURN, when.an_earlier_turn_has_stopped_it, "True"
    ),
    Guard(
        "which boot a start is to leave",
        boot_wait.is_started,
        "node.boot_id != left.data",
        when.it_had_booted_right_before_its_start,
        "True",
    ),
    Guard(
        "when the boot after a start began",
        boot_wait.is_started,
        "node.booted_at >= left.at - _CLOCKS_DIFFER",
        when.a_boot_of_before_its_start_is_told_after_it,
        "True",
    ),
    Guard(
        "which turn's machine comes up",
        new_machine.welcome,
        "wait.token == direct.token",
        when.an_earlier_turns_machine_comes_up,
        "True",
    ),
    Guard(
        "that a late machine is missed",
        late_machine.tell_of_late,
        "broken.open_incident != wait.incident_id",
        when.a_human_has_given_it_back_when_the_late_machine_comes,
    ),
    Guard(
        "the version of a node that is silent",
        hear_silence._still_silent,
        _HEARD,
        when.a_silent_node_is_written_while_it_is_looked_at,
        taken_for_saved(_HEARD),
    ),
    Guard(
        "that this turn has terminated it",
        replace_machine._is_terminated,
        "known.command_id == TERMINATED",
        when.ec2_still_shows_a_machine_that_this_turn_has_terminated,
    ),
    Guard(
        "which of two answers holds",
        answer_approval.answer_approval,
        "not is_first",
        when.the_first_answer_was_recorded_by_a_call_that_died,
    ),
    Guard(
        "that somebody waits for an answer still",
        answer_approval.answer_approval,
        "not was_waiting",
        when.the_answer_comes_when_its_workflow_has_given_up,
    ),
    Guard(
        "that a turn has ended without its answer",
        answer_approval._at_the_last_moment,
        "result is not None and result.reason != entry.text",
        when.the_answer_comes_when_its_workflow_has_given_up,
    ),
)
