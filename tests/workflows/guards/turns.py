"""The guards of tests/workflows/scenarios/turns.py: where each stands, and what goes wrong without it."""

from nodeheal.services.intake import liveness
from nodeheal.services.recovery import late_machine, new_machine, replace_machine
from tests.workflows.guards.guard import Guard, taken_for_saved
from tests.workflows.scenarios import turns as when

_INCIDENT = "wait.incident_id != request.incident_id"
_TURN = "StepRequest.model_validate_json(wait.request_json).operation_turn == request.operation_turn"
_HEARD = "known == node or ports.nodes.save(known)"

GUARDS = (
    Guard("whose replacement is under way", replace_machine.wait_of, _INCIDENT, when.another_incident_replaces_it),
    Guard(
        "of which turn a replacement is", replace_machine.wait_of, _TURN, when.an_earlier_turn_has_replaced_it, "True"
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
        liveness._still_silent,
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
)
