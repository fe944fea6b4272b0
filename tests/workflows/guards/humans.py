"""The guards of tests/workflows/scenarios/humans.py: where each stands, and the scenario that goes wrong without it."""

from nodeheal.domain.faults import assessment
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery import guardrails, recover
from nodeheal.domain.recovery.approval_links import Links
from nodeheal.domain.recovery.decision_context import DecisionContext
from nodeheal.domain.recovery.incident import History
from nodeheal.services.operators import answer_approval, close_incident, withdraw_request
from nodeheal.services.operators import operator_guardrails as operator_guardrails
from nodeheal.services.recovery import retire_broken
from tests.workflows.guards.guard import Guard, taken_for_saved
from tests.workflows.scenarios import humans as when

GUARDS = (
    Guard(
        "observe mode",
        guardrails.blocked_before_start,
        "mode_of(builder, fault, fault.action) is Mode.observe",
        when.the_pool_is_observed,
    ),
    Guard("an opt-out", RecoveryPolicy.why_opted_out, "node_id in self.opted_out", when.the_node_is_opted_out),
    Guard(
        "a paused node",
        DecisionContext.why_paused,
        "self.node_paused_until is not None and self.node_paused_until > now",
        when.the_node_is_paused,
    ),
    Guard("a paused pool", DecisionContext.why_paused, "self.pool.why_paused(now)", when.the_pool_is_paused, "''"),
    Guard(
        "a pause in the middle",
        guardrails.blocked_mid_recovery,
        "hands_off_reason(builder, fault)",
        when.it_is_paused_in_the_middle,
        "''",
    ),
    Guard(
        "the question",
        guardrails.approval,
        "mode_of(builder, fault, action) is not Mode.approve",
        when.a_human_says_no,
        "True",
    ),
    Guard("the answer", guardrails.approval, "answer.outcome is Outcome.DONE", when.a_human_says_no, "True"),
    Guard(
        "the time to answer",
        answer_approval.answer_approval,
        "asked.deadline_at <= ports.clock()",
        when.a_human_answers_too_late,
    ),
    Guard(
        "the signature of a link",
        Links.read,
        "not hmac.compare_digest(self._sign(question, answer, expires).encode(), given.encode())",
        when.a_link_is_forged,
    ),
    Guard("the expiry of a link", Links.read, "now >= datetime.fromtimestamp(expires, UTC)", when.a_link_is_old),
    Guard(
        "a reset that came meanwhile",
        operator_guardrails.trip_breaker,
        "known.breaker_reset_at != seen.breaker_reset_at",
        when.a_human_resets_the_breaker_meanwhile,
    ),
    Guard(
        "the breaker", guardrails.breaker, "not pool.is_tripped and cause is None", when.many_fail_for_one_cause, "True"
    ),
    Guard(
        "that only what a human has is closed",
        close_incident.close_incident,
        "incident.state is not IncidentState.ESCALATED",
        when.a_human_closes_what_is_at_work,
    ),
    Guard(
        "that a node out of service is given back, and not forgotten",
        close_incident._held,
        "node.state in OUT_OF_SERVICE",
        when.a_human_closes_what_keeps_a_node_out,
    ),
    Guard(
        "that only what waits is withdrawn",
        withdraw_request._waiting_request,
        "incident.root.code != OPERATOR_REQUEST or incident.state is not IncidentState.WAITING",
        when.a_request_is_withdrawn_while_it_is_carried_out,
    ),
    Guard(
        "that nothing was touched when it is withdrawn",
        withdraw_request._waiting_request,
        "node.state in OUT_OF_SERVICE",
        when.a_request_is_withdrawn_that_has_isolated_its_node,
    ),
    Guard(
        "what else was reported",
        withdraw_request._waiting_request,
        "_is_a_finding(event)",
        when.a_request_is_withdrawn_after_a_fault,
    ),
    Guard(
        "that the node is let go with its request",
        withdraw_request.withdraw_request,
        "ports.incidents.finish(over, replace(node, open_incident=None))",
        when.a_request_is_withdrawn_while_its_node_is_written,
        taken_for_saved("ports.incidents.finish(over, replace(node, open_incident=None))"),
    ),
    Guard(
        "a pause before the broken machine goes",
        retire_broken.retire_broken,
        "_held(request, ports, policy)",
        when.it_is_paused_before_the_broken_machine_goes,
        "''",
    ),
    Guard(
        "that what is asked for is of no boot",
        History.has_booted_since,
        "not is_boot_independent(event)",
        when.an_isolation_of_an_idle_node_is_asked_for_and_it_boots,
        "True",
    ),
    Guard(
        "that what is asked for is done on any boot",
        recover._boot_concerned,
        "is_boot_independent(fault.event)",
        when.a_replacement_is_asked_for_and_it_boots,
    ),
    Guard(
        "that it stands beside what comes later",
        assessment._relevant,
        "is_boot_independent(event)",
        when.an_isolation_is_asked_for_and_its_program_fails_on_another_boot,
    ),
    Guard(
        "that an operator wants it out of service",
        assessment._assessment_of,
        "fault.keeps_out",
        when.an_isolation_is_asked_for_and_it_fails,
    ),
)
