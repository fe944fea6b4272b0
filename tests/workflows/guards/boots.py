"""The guards of tests/workflows/scenarios/boots.py: where each stands, and the scenario that goes wrong without it."""

from nodeheal.agent.node_command import why_refuse
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.recovery import guardrails, progress, recover
from nodeheal.domain.recovery.incident import History
from nodeheal.operations import engine, isolate, replace
from nodeheal.services.intake import ingest, wakeup
from nodeheal.services.recovery import return_to_service
from tests.workflows.guards.guard import Guard, taken_for_saved
from tests.workflows.scenarios import boots as when

GUARDS = (
    Guard(
        "the proof",
        return_to_service.return_to_service,
        "not proof.is_proven",
        when.it_fails_again_before_its_return,
    ),
    Guard(
        "an event of an old boot",
        ingest._why_past,
        "node.view(event.boot_id, event.observed_at) is BootView.PAST",
        when.an_old_boots_fault_comes_late,
    ),
    Guard("what was before the agent", ingest._why_past, "event.is_history", when.history_is_told),
    Guard(
        "an event from before the proof",
        ingest._why_stale,
        "node.healthy_since is not None and event.observed_at < node.healthy_since",
        when.a_fault_from_before_the_proof_comes_late,
    ),
    Guard(
        "a boot of before",
        wakeup.on_node_booted,
        "node.view(event.boot_id, event.observed_at) is BootView.PAST",
        when.an_old_boot_is_told_late,
    ),
    Guard(
        "which boots are past",
        Node.view,
        "boot_id in self.past_boots or observed_at <= self.booted_at",
        when.an_old_boots_fault_comes_late,
    ),
    Guard(
        "which boot was diagnosed",
        engine.answered,
        "operation.boot_id == event.boot_id",
        when.another_boot_was_diagnosed,
        "True",
    ),
    Guard(
        "the boot of the proof",
        return_to_service.return_to_service,
        "proof.proof.boot_id != node.boot_id",
        when.it_reboots_after_its_proof,
    ),
    Guard("the boot of an order, at the node", why_refuse, "boot_id not in meant_for", when.an_order_comes_again),
    Guard(
        "the expiry of an order, at the node",
        why_refuse,
        "not now < expires_at",
        when.an_order_comes_too_late,
    ),
    Guard(
        "that it has rebooted while it waited",
        guardrails.stale,
        "progress.has_waited or not context.is_job_broken",
        when.it_rebooted_while_it_waited,
    ),
    Guard(
        "which boot was checked for a job",
        engine.answered,
        "operation.boot_id == event.boot_id",
        when.another_boot_was_checked,
        "True",
    ),
    Guard(
        "the version of a node that has booted",
        wakeup.on_node_booted,
        "ports.nodes.save(booted)",
        when.a_node_is_written_while_its_boot_is_told,
        taken_for_saved("ports.nodes.save(booted)"),
    ),
    Guard(
        "which boot has saved its evidence",
        engine.answered,
        "operation.boot_id == event.boot_id",
        when.another_boot_has_saved_evidence,
        "True",
    ),
    Guard(
        "that it has come up again",
        guardrails.stale,
        "builder.history.has_booted_since(fault.event)",
        when.it_comes_up_again_without_a_job,
    ),
    Guard(
        "that its job is down",
        guardrails.stale,
        "not context.is_job_broken",
        when.it_comes_up_again_and_its_job_is_down,
        "True",
    ),
    Guard(
        "that it may have mended itself",
        recover._diagnose_new_boot,
        "not boot_id or now_on in ('', boot_id)",
        when.it_comes_up_again_and_its_job_is_down,
        "True",
    ),
    Guard(
        "what it shows on a boot of its own",
        History.rebased_on_latest_boot,
        "not later",
        when.it_fails_again_on_a_boot_of_its_own,
        "True",
    ),
    Guard(
        "that it has come back before it is replaced",
        replace._start,
        "spare is None and request.decision.boot_id not in ('', node.boot_id)",
        when.it_comes_up_again_before_it_is_replaced,
    ),
    Guard(
        "of which boot it is given up",
        replace._start,
        "request.decision.boot_id not in ('', node.boot_id)",
        when.it_comes_up_again_before_its_spare_is_claimed,
    ),
    Guard(
        "that its successor is asked for",
        replace._start,
        "is_untouched",
        when.it_comes_up_again_when_its_successor_is_asked_for,
        "True",
        nth=2,
    ),
    Guard(
        "that its spare is claimed",
        replace._start,
        "spare is None",
        when.it_comes_up_again_when_its_spare_is_claimed,
        "True",
        nth=1,
    ),
    Guard(
        "that what was not begun is no escalation step",
        progress._fold,
        "result.refused_for(Refusal.NEW_BOOT)",
        when.it_comes_up_again_before_its_spare_is_claimed,
    ),
    Guard(
        "of which boot it is isolated",
        isolate._why_refused,
        "request.decision.boot_id not in ('', node.boot_id)",
        when.it_comes_up_again_before_it_is_isolated,
    ),
    Guard(
        "that it was isolated before it booted",
        isolate._why_refused,
        "node.state is not NodeState.ISOLATED",
        when.it_comes_up_again_once_it_is_isolated,
        "True",
    ),
    Guard(
        "that it was not isolated yet",
        History.rebased_on_latest_boot,
        "not turn.is_refused",
        when.it_fails_again_while_it_stands_in_line,
        "True",
    ),
)
