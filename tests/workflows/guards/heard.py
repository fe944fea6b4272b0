"""The guards of tests/workflows/scenarios/heard.py: where each stands, and what goes wrong without it."""

from nodeheal.operations import isolate
from nodeheal.services.jobs import find_checkpoint
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import heard as when

GUARDS = (
    # Checkpoints
    Guard(
        "that a checkpoint was found for this start",
        find_checkpoint.find_checkpoint,
        "request.searches == 0 and job.found is not None",
        when.nobody_can_tell_any_more_where_it_goes_on,
    ),
    # Of one node
    Guard(
        "that all have answered",
        isolate._observe,
        "not left",
        when.the_first_of_two_ranks_stops,
        "len(left) < 2",
    ),
)
