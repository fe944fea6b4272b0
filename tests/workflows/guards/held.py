"""The guards of tests/workflows/scenarios/held.py: where each stands, and what goes wrong without it."""

from nodeheal.domain.fleet import machine
from nodeheal.domain.recovery import guardrails, ladder, recover
from nodeheal.operations import replace
from nodeheal.services.recovery import retire_broken
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import held as when

GUARDS = (
    # In the middle of a recovery
    Guard(
        "the mode of the next escalation step",
        guardrails.blocked_mid_recovery,
        "not blocked and mode_of(builder, fault, action) is Mode.observe",
        when.its_next_step_is_only_observed,
    ),
    Guard(
        "the breaker, for a node that is isolated",
        guardrails.blocked_mid_recovery,
        "breaker(builder, progress, fault)",
        when.the_breaker_opens_when_it_is_isolated,
        "None",
    ),
    Guard(
        "that each escalation step is asked for",
        guardrails.blocked_mid_recovery,
        "approval(builder, progress, fault, action)",
        when.its_reboot_was_approved_and_did_not_help,
        "None",
    ),
    Guard(
        "that a breaker is not waited for again and again",
        guardrails.breaker,
        "waited is None or waited.outcome is not Outcome.TIMED_OUT",
        when.nobody_resets_the_breaker_in_time,
        "True",
    ),
    Guard(
        "that a job was restarted before hands were held off",
        guardrails.blocked_before_start,
        "progress.restart is not None",
        when.its_pool_is_paused_when_its_job_fails_again,
    ),
    Guard(
        "that a node is taken away",
        recover.recover,
        "progress.returned is None and builder.history.context.is_released_or_retired",
        when.it_is_given_back_when_it_is_isolated,
    ),
    Guard(
        "that a job runs again",
        recover._after_manual_release,
        "not builder.history.context.job_is_running",
        when.its_job_runs_again_when_it_is_given_back,
        "True",
    ),
    Guard(
        "that a node fails after its return",
        recover.recover,
        "progress.returned is not None and progress.contradiction",
        when.it_fails_again_when_it_is_back,
    ),
    # What is old by the time that its turn has come
    Guard(
        "that a node has passed since",
        guardrails.stale,
        "progress.has_waited and context.healthy_since is not None and (context.healthy_since > last_seen_at)",
        when.it_has_passed_while_it_stood_in_line,
    ),
    Guard(
        "what speaks against a node",
        guardrails.stale,
        "event.verdict is not Verdict.OK",
        when.it_has_passed_and_said_so_while_it_stood_in_line,
        "True",
    ),
    # What was asked for by hand
    Guard(
        "that nothing was touched when it was withdrawn",
        guardrails.cancelled_by_operator,
        "is_touched",
        when.a_request_is_withdrawn_when_it_is_isolated,
    ),
    Guard(
        "what is not of the one who withdraws",
        guardrails.cancelled_by_operator,
        "others",
        when.a_request_is_withdrawn_and_the_node_has_failed,
        nth=1,
    ),
    Guard(
        "what needs nobody when a request is withdrawn",
        guardrails.cancelled_by_operator,
        "f.action is not Action.OBSERVE",
        when.a_request_is_withdrawn_and_something_harmless_was_seen,
        "True",
    ),
    Guard(
        "that a human has asked for a replacement",
        guardrails.keep_machine_reason,
        "incident.root.code == OPERATOR_REQUEST",
        when.a_request_is_carried_out_in_a_pool_that_is_observed,
    ),
    Guard(
        "that a human has asked for no more than a reboot",
        ladder.escalation_steps,
        "not fault.is_by_hand",
        when.a_reboot_by_hand_has_not_helped,
        "True",
    ),
    # The ladder
    Guard(
        "what can be stopped and started",
        ladder.escalation_steps,
        "provider in verb.providers",
        when.a_hybrid_node_cannot_be_stopped,
        "True",
    ),
    Guard(
        "that a stop and start comes after a reboot",
        ladder.escalation_steps,
        "verb.follows in fault.ladder",
        when.its_ladder_has_no_reboot,
        "verb.follows is not None",
    ),
    Guard(
        "that a ladder never goes down",
        ladder.spent_reason,
        "any((spent.get((scope, higher), 0) for scope in scopes))",
        when.it_was_replaced_in_this_window,
    ),
    Guard(
        "that a node is a lemon",
        ladder.remaining_steps,
        "'' if fault.is_by_hand else lemon_reason(builder)",
        when.it_was_recovered_twice_this_week,
        "''",
    ),
    Guard(
        "which recoveries make a lemon",
        ladder.lemon_reason,
        "past.opened_at > oldest",
        when.it_was_recovered_long_ago,
        "True",
    ),
    Guard(
        "that its own incident makes a lemon once",
        ladder.lemon_reason,
        "past.incident_id != incident.incident_id",
        when.it_was_recovered_once_and_is_in_its_second_recovery,
        "True",
    ),
    Guard(
        "how many recoveries make a lemon",
        ladder.lemon_reason,
        "len(others) + 1 < rules.incidents",
        when.it_was_recovered_once,
    ),
    # Machines
    Guard(
        "what a stop would lose",
        machine.why_not_stop,
        "machine.root_device != 'ebs'",
        when.it_has_its_root_on_a_local_disk,
    ),
    Guard(
        "what may not start again",
        machine.why_not_stop,
        "machine.lifecycle",
        when.it_was_bought_on_the_spot_market,
        nth=1,
    ),
    Guard("what would not move", machine.why_not_stop, "machine.tenancy == 'host'", when.it_is_tied_to_its_host),
    Guard("whose stop it is", machine.why_not_stop, "machine.state != 'running'", when.somebody_else_is_stopping_it),
    Guard(
        "what speaks against a replacement",
        replace._start,
        "why_not_act(node, request, ports, NodeState.QUARANTINED)",
        when.a_replacement_is_asked_for_without_a_slot,
        "''",
    ),
    Guard(
        "what nobody can give back",
        retire_broken.retire_broken,
        "node.provider is Provider.hybrid or node.open_incident != request.incident_id",
        when.a_hybrid_node_has_its_successor,
        "node.open_incident != request.incident_id",
    ),
)
