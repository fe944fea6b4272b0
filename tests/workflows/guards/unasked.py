"""The guards of tests/workflows/scenarios/unasked.py: where each stands, and what goes wrong without it."""

from nodeheal.domain.faults import assessment
from nodeheal.domain.jobs import placement
from nodeheal.services.jobs import job_steps
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import unasked as when

GUARDS = (
    Guard(
        "that somebody waits for a step of a job",
        job_steps.job_token,
        "not request.task_token",
        when.its_jobs_state_machine_hands_over_no_token,
    ),
    Guard(
        "which boot an incident is about",
        assessment._relevant,
        "event.boot_id == root.boot_id",
        when.a_reboot_was_asked_for_and_the_next_boot_fails,
        "True",
    ),
    Guard(
        "that a claimed node is not free",
        placement._why_not,
        "node.claimed_by",
        when.others_have_what_is_to_stay_free,
        nth=1,
    ),
)
