"""The guards of tests/workflows/scenarios/outcomes.py: where each stands, and what goes wrong without it."""

from nodeheal.domain.fleet.unmanaged_tasks import StoppedTask
from nodeheal.domain.jobs import early_end
from nodeheal.domain.recovery import guardrails, ladder, recover
from nodeheal.operations import late_capacity
from nodeheal.services.jobs import judge_checks
from nodeheal.services.recovery import unmanaged_tasks
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import outcomes as when

_OWED = StoppedTask.is_owed.fget  # type: ignore[attr-defined]

GUARDS = (
    # Checks of a job
    Guard(
        "that a job is to stop, when its nodes are judged",
        judge_checks.judge_checks,
        "stopped is not None",
        when.a_person_stops_a_job_while_its_nodes_are_checked,
    ),
    Guard(
        "what a check has found for certain",
        judge_checks._report,
        "answer.outcome is Outcome.FAILED",
        when.a_node_cannot_tell_whether_it_is_well,
        "True",
    ),
    Guard(
        "that a check was begun",
        judge_checks._broke_off,
        "not answers_of(request, ports)",
        when.a_node_has_not_answered_when_the_wait_is_over,
        "True",
    ),
    Guard(
        "that a node has failed, whatever broke off",
        judge_checks.judge_checks,
        "not bad",
        when.a_check_breaks_off_when_one_has_failed,
        "True",
        nth=1,
    ),
    # Diagnoses
    # Ranks
    Guard(
        "how a rank has ended",
        early_end.ended_early,
        "not task.has_succeeded",
        when.a_rank_is_quickly_done,
        "True",
    ),
    Guard(
        "that a job is over, for its early end",
        early_end.early_end,
        "job.is_over",
        when.a_rank_fails_when_its_job_is_over,
    ),
    # Steps of a recovery
    Guard(
        "what a human has answered, for a pause",
        guardrails.blocked_before_start,
        "answer.outcome is Outcome.DONE",
        when.a_no_comes_before_its_node_is_paused,
        "True",
    ),
    Guard(
        "who brings the job back, when a node is given back",
        recover._after_manual_release,
        "not progress.job_is_left_to",
        when.another_incident_brings_its_job_back_when_it_is_given_back,
        "True",
    ),
    Guard(
        "that a reboot is above the escalation step",
        ladder.escalation_steps,
        "verb.follows in actions",
        when.its_reboots_were_in_earlier_incidents,
        "True",
    ),
    Guard(
        "what a job need not wait for",
        recover.recover,
        "moved.step is Step.DIAGNOSE",
        when.its_job_goes_on_elsewhere_at_once,
        "True",
    ),
    Guard(
        "whose broken node stays",
        recover._next_step,
        "builder.history.context.provider is Provider.hybrid",
        when.its_machine_can_be_replaced_when_its_job_has_moved,
        "True",
    ),
    Guard(
        "that a workflow waits still",
        late_capacity.report_late,
        "last.awaits in _WAITS_STILL",
        when.a_machine_comes_late_when_a_human_has_its_incident,
        "True",
    ),
    # Tasks of others
    Guard(
        "that a unmanaged_task's start was refused",
        _OWED,
        "self.successor is None",
        when.an_unmanaged_task_that_was_refused_could_start_when_the_end_is_repeated,
        "True",
    ),
    Guard(
        "which unmanaged_tasks were refused before",
        unmanaged_tasks.restart_unmanaged_tasks,
        "each.successor == ''",
        when.an_unmanaged_task_was_refused_before_the_end_is_repeated,
    ),
)
