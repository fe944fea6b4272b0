"""The guards of tests/workflows/scenarios/storms.py: where each stands, and what goes wrong without it."""

from nodeheal.domain.faults import correlation
from nodeheal.domain.recovery import attempt_budget, decide, guardrails, recover
from nodeheal.operations import isolate
from nodeheal.services.recovery import decide_next_step, end_incident
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import storms as when

GUARDS = (
    # What is asked for, and what leaves, in the middle of it
    Guard(
        "that an operator asks, whatever others have",
        correlation.common_cause,
        "fault.is_by_hand",
        when.an_operator_asks_for_a_reboot_in_a_storm,
    ),
    Guard(
        "what is a departure",
        correlation.common_cause,
        "fault.key in policy.breaker.departures",
        when.a_spot_machine_is_taken_back_in_a_storm,
    ),
    Guard(
        "that an operator asks, in maintenance",
        guardrails.hands_off_reason,
        "fault.is_by_hand",
        when.an_operator_asks_for_a_reboot_in_maintenance,
    ),
    # Breakers
    Guard(
        "what a reset is about",
        correlation.common_cause,
        "s.at <= reset_at",
        when.a_storm_comes_long_after_a_reset,
        "True",
    ),
    Guard(
        "who has waited for a breaker",
        guardrails.stale,
        "Awaited.BREAKER in progress.waited",
        when.a_breaker_was_reset_for_which_it_has_not_waited,
        "True",
    ),
    Guard(
        "that a breaker was ever reset",
        guardrails._is_stale,
        "pool.breaker_reset_at is None",
        when.its_storm_is_over_before_the_breaker_opened,
    ),
    Guard(
        "that a breaker's opening is waited for",
        decide_next_step._page,
        "told is not None",
        when.its_neighbours_fail_while_it_is_rebooted,
        "True",
    ),
    Guard(
        "that a storm opens the breaker",
        guardrails.breaker_cause,
        "pool.is_tripped or is_observed or (not assessment.fault.touches_the_node)"
        " or hands_off_reason(builder, assessment.fault)",
        when.its_neighbours_fail_while_it_is_rebooted,
        "True",
    ),
    Guard(
        "that a pool is only observed, for its breaker",
        guardrails.breaker_cause,
        "is_observed",
        when.what_fails_together_is_only_observed,
    ),
    Guard(
        "which faults open a breaker",
        guardrails.breaker_cause,
        "not assessment.fault.touches_the_node",
        when.many_programs_fail_together,
    ),
    Guard(
        "how long a node must run",
        recover._wait_until_stable,
        "last is None",
        when.it_has_just_passed_after_its_reboot,
        "True",
    ),
    # Whose it is
    Guard(
        "which run others speak of",
        correlation.nodes_with_fault,
        "s.at < started <= event.observed_at",
        when.another_node_of_its_run_has_just_shown_it,
        "True",
    ),
    Guard(
        "what can be withdrawn",
        guardrails.cancelled_by_operator,
        "not is_asked_for",
        when.it_was_given_back_before_it_was_touched,
    ),
    Guard(
        "that a job runs, whoever brought it back",
        decide._escalate_if_job_stays_down,
        "not builder.history.context.job_is_running",
        when.the_job_that_was_left_to_it_runs,
        "True",
    ),
    Guard(
        "that a job has ended, for those who wait for it",
        end_incident._wake_who_waits_for_the_job,
        "not run.has_ended",
        when.a_gang_runs_when_an_incident_of_it_ends,
    ),
    Guard(
        "whose machines EC2 knows",
        isolate._other_owner,
        "node.provider is Provider.hybrid",
        when.ec2_does_not_answer_when_a_node_of_ours_is_isolated,
    ),
    # What is counted
    Guard(
        "how long an attempt counts",
        attempt_budget.in_window,
        "at > oldest",
        when.a_reboot_of_last_week_is_counted,
        "True",
    ),
    Guard(
        "which faults were the job's",
        end_incident._settled,
        "not was_fault_of_job(fault, policy, node.pool)",
        when.its_job_is_restarted_when_it_is_healed,
    ),
    Guard(
        "what waits for machines",
        recover._wait_for_capacity,
        "action is not Action.REPLACE",
        when.no_machine_was_to_be_had_at_first,
    ),
)
