"""Every guard, and the scenario that goes wrong without it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nodeheal.adapters.memory.stores import (
    MemoryIncidentStore,
    MemoryJobNotes,
    MemoryJobStore,
    MemoryNodeStore,
    MemoryPoolStore,
    MemoryWaitStore,
)
from nodeheal.adapters.memory.world import MemoryWorkflows
from nodeheal.agent.order import why_refuse
from nodeheal.domain import brakes, budget
from nodeheal.domain.approval import Links
from nodeheal.domain.node import Node
from nodeheal.domain.policy import RecoveryPolicy
from nodeheal.domain.surroundings import Surroundings
from nodeheal.services import (
    answer_approval,
    ask_after_ranks,
    choose_nodes,
    decide_next_step,
    end_incident,
    freeze_evidence,
    ingest,
    isolate_node,
    job_nodes,
    job_stand_in,
    launch_gang,
    launch_job,
    notify,
    queue,
    reboot_node,
    release_node,
    reserve_attempt,
    return_to_service,
    run_diagnostics,
    send_command,
    stand_in,
    stop_gang,
    sweep,
    wait_for_approval,
    wait_for_news,
    wakeup,
)
from nodeheal.services import brakes as brakes_by_hand
from nodeheal.services.boot_wait import proves_boot
from tests.workflows import scenarios as when


@dataclass(frozen=True)
class Guard:
    """`name`: what is missing. `where` holds `guard`, which becomes `becomes`; `scenario` says what is wrong then."""

    name: str
    where: Callable[..., Any]
    guard: str
    scenario: Callable[[], list[str]]
    becomes: str = "False"

    def __str__(self) -> str:
        return self.name


def _not_saved(call: str) -> str:
    """The call is made, and its refusal ignored."""
    return f"({call}, False)[1]"


GUARDS = (
    # Conditional writes
    Guard(
        "the version of a node",
        MemoryNodeStore.save,
        "(stored.version if stored else 0) != node.version",
        when.two_want_the_last_spare,
    ),
    Guard(
        "the version of a node, at a pause",
        MemoryNodeStore.save,
        "(stored.version if stored else 0) != node.version",
        when.a_pause_comes_with_the_isolation,
    ),
    Guard(
        "the node's version at the opening",
        MemoryIncidentStore.open,
        "not self.nodes.save(node)",
        when.two_faults_in_one_moment,
        _not_saved("self.nodes.save(node)"),
    ),
    Guard("one entry of a name", MemoryIncidentStore.append, "entry.entry_id in entries", when.two_humans_answer),
    Guard(
        "one decision a turn",
        MemoryIncidentStore.advance,
        "stored.turn != incident.turn - 1",
        when.a_turn_is_decided_twice,
    ),
    Guard(
        "the version of a run",
        MemoryJobStore.save_run,
        "(stored.version if stored else 0) != run.version",
        when.two_ranks_stop_in_one_moment,
    ),
    Guard(
        "the version of a job",
        MemoryJobStore.save,
        "(stored.version if stored else 0) != job.version",
        when.a_job_is_launched_while_it_ends,
    ),
    Guard(
        "the version of a pool",
        MemoryPoolStore.save,
        "self.get(pool.name).version != pool.version",
        when.a_pause_comes_with_the_breaker,
    ),
    Guard(
        "whose wait is dropped", MemoryWaitStore.drop, "stored.token == wait.token", when.a_newer_wait_is_stored, "True"
    ),
    Guard(
        "one answer a token",
        MemoryWorkflows.resume,
        "token in self.expired or token in self.resumed",
        when.two_say_how_it_went,
    ),
    Guard(
        "an email that has gone out",
        notify.notify,
        "ports.messenger.was_sent(notification)",
        when.an_email_is_announced_again_much_later,
    ),
    # Leases
    Guard(
        "the lease of a directory",
        MemoryJobNotes.hold,
        "self.leases.setdefault(directory, job_id)",
        when.two_jobs_want_one_directory,
        "job_id",
    ),
    Guard(
        "the look at the lease",
        choose_nodes._hold_directory,
        "holder == job.job_id",
        when.two_jobs_want_one_directory,
        "True",
    ),
    Guard(
        "whose lease is given back",
        MemoryJobNotes.let_go,
        "self.leases.get(directory) == job_id",
        when.two_jobs_want_one_directory,
        "True",
    ),
    # The budget
    Guard("the number of slots", MemoryPoolStore.claim, "len(held) >= slots", when.the_budget_is_full),
    Guard("one slot a node", MemoryPoolStore.claim, "node_id in held", when.an_isolation_is_repeated),
    Guard(
        "the claim of a slot",
        isolate_node._why_no_slot,
        "ports.pools.claim(node.pool, node.node_id, slots)",
        when.the_budget_is_full,
        "True",
    ),
    Guard(
        "the line for a slot",
        isolate_node._why_no_slot,
        "ahead and node.node_id not in ports.pools.holders(node.pool)",
        when.somebody_stands_in_line,
    ),
    Guard(
        "that a slot was claimed a moment ago",
        queue._free_what_a_crash_left,
        "not _is_worked_on(node, ports)",
        when.the_sweep_passes_between_claim_and_mark,
        "True",
    ),
    Guard(
        "a slot before anything is done",
        reserve_attempt.why_not_act,
        "node.node_id not in ports.pools.holders(node.pool)",
        when.the_slot_is_gone,
    ),
    # Attempts
    Guard(
        "the limit of attempts", budget.reserve, "len(counted) >= limit.limit", when.the_last_attempt_goes_to_another
    ),
    Guard("one attempt a turn", budget.reserve, "attempt_id in counted", when.a_reservation_is_repeated),
    Guard(
        "an attempt before anything is done",
        reserve_attempt.why_not_act,
        "'' if granted else 'no attempt is reserved'",
        when.the_attempt_is_gone,
        "''",
    ),
    # Whose node it is
    Guard(
        "its isolation",
        reserve_attempt.why_not_act,
        "node.open_incident != request.incident_id or node.state not in states",
        when.the_node_is_given_back,
    ),
    Guard(
        "whose node is isolated",
        isolate_node.isolate_node,
        "node.open_incident != request.incident_id",
        when.the_node_is_anothers,
    ),
    Guard(
        "whose node is diagnosed",
        run_diagnostics.run_diagnostics,
        "node.open_incident != request.incident_id",
        when.the_node_is_anothers_when_it_is_diagnosed,
    ),
    Guard(
        "whose node's evidence is saved",
        freeze_evidence._why_not,
        "node.open_incident != request.incident_id",
        when.the_node_is_anothers_when_its_evidence_is_saved,
    ),
    Guard(
        "whose claim a node has when it is launched on",
        launch_job._why_unfit,
        "node.claimed_by != job.job_id",
        when.a_node_is_claimed_anew_before_the_launch,
    ),
    Guard(
        "whose node is returned",
        return_to_service.return_to_service,
        "node.open_incident != request.incident_id",
        when.the_node_is_anothers_when_it_is_returned,
    ),
    Guard(
        "whose node is let go",
        end_incident._let_go,
        "node.open_incident != incident_id",
        when.the_node_is_anothers_at_the_end,
    ),
    Guard(
        "another owner",
        isolate_node._other_owner,
        "machine is None or machine.other_owner in (None, *policy.pool(node.pool).replacement.accept_owners)",
        when.another_repairs_it,
        "True",
    ),
    Guard(
        "another job on the node",
        isolate_node._other_job,
        "run is not None and (not run.has_ended)",
        when.another_job_has_come,
    ),
    Guard(
        "that a spare is free",
        stand_in.claim_spare,
        "node.is_available(ports.clock())",
        when.the_spare_has_work,
        "True",
    ),
    Guard(
        "that a stand-in is free",
        job_stand_in.hold_stand_in,
        "not node.is_available(ports.clock())",
        when.the_stand_in_is_taken_before_it_is_tested,
    ),
    Guard(
        "that a stand-in has passed",
        decide_next_step.decide_next_step,
        "read_progress(history, policy).stand_in_failed",
        when.a_stand_in_that_failed_is_no_spare,
    ),
    Guard(
        "that a recovery is at work",
        release_node._must_be_idle,
        "incident.state is IncidentState.OPEN",
        when.a_human_releases_under_a_recovery,
    ),
    Guard(
        "that a node is free for a job",
        job_nodes._claim_one,
        "node is not None and node.is_available(ports.clock())",
        when.another_job_claims_too,
        "node is not None",
    ),
    # Boots
    Guard(
        "the proof",
        return_to_service.return_to_service,
        "not proof.is_proven",
        when.it_fails_again_before_its_return,
    ),
    Guard("an event of an old boot", ingest.ingest, "view is BootView.PAST", when.an_old_boots_fault_comes_late),
    Guard(
        "an event from before the proof",
        ingest.ingest,
        "node.good_since is not None and event.observed_at < node.good_since",
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
        "that only another boot proves a reboot",
        proves_boot,
        "wait.boot_id == node.boot_id",
        when.it_answers_before_it_went_down,
    ),
    Guard(
        "which boot was diagnosed",
        wakeup.on_diagnostics_finished,
        "wait.boot_id != event.boot_id",
        when.another_boot_was_diagnosed,
    ),
    Guard(
        "which node was diagnosed",
        wakeup.on_diagnostics_finished,
        "blank.node_id != event.node_id",
        when.another_node_answers,
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
        "not clock.utc_now().timestamp() < expires_at",
        when.an_order_comes_too_late,
    ),
    Guard(
        "that it has rebooted while it waited",
        brakes.out_of_date,
        "seen.has_waited and around.boot_id not in ('', root.boot_id)",
        when.it_rebooted_while_it_waited,
    ),
    # Once
    Guard(
        "that a fault joins",
        ingest._take_fault,
        "node.open_incident and (not _is_abandoned(node, ports))",
        when.two_faults_one_after_the_other,
    ),
    Guard(
        "that a broken recovery is over",
        ingest._is_abandoned,
        "ports.incidents.history(node.open_incident).incident.state is IncidentState.ESCALATED",
        when.a_recovery_broke_before,
    ),
    Guard(
        "that a fault is settled",
        ingest._take_fault,
        "settled and (not _is_open_again(event, node, settled, ports, policy))",
        when.a_harmless_fault_repeats,
    ),
    Guard("faults of the lifeless", ingest.ingest, "node.state in _LIFELESS", when.a_retired_node_reports),
    Guard(
        "that an incident is ending",
        ingest._may_end_without_it,
        "last is None or last.ending is None or last.events_seen >= len(history.events)",
        when.a_fault_comes_at_the_end,
        "True",
    ),
    Guard("that news is brought", ingest._join, "is_new or _is_unseen(history)", when.it_grows_worse),
    Guard(
        "a lost start, at the redelivery",
        ingest._join,
        "history.incident.turn == 0 and history.incident.state is IncidentState.OPEN",
        when.the_start_is_lost_and_told_again,
    ),
    Guard("a lost start, at the sweep", sweep._start_what_was_lost, "one.turn == 0", when.the_start_is_lost_for_good),
    Guard(
        "that a turn is decided",
        decide_next_step.decide_next_step,
        "len(history.turns) > request.turn",
        when.a_decision_is_asked_again,
    ),
    Guard(
        "that a command was sent",
        send_command.send_once,
        "known is not None and same and known.command_id",
        when.a_command_is_repeated,
    ),
    Guard(
        "that EC2 was asked",
        send_command._reboot_machine,
        "known is not None and is_sent_to_machine(known) and known.boot_id == wait.boot_id",
        when.ec2_is_asked_again,
    ),
    Guard(
        "that this turn has rebooted it",
        reboot_node.reboot_node,
        "note_boot(request, node, ports, REBOOTING) != node.boot_id",
        when.a_reboot_is_repeated_after_it_worked,
    ),
    Guard(
        "that this turn has launched it",
        launch_gang.launch_gang,
        "last.why != launch_id(request)",
        when.a_launch_is_repeated,
        "True",
    ),
    Guard(
        "what came before the wait",
        wait_for_news.wait_for_news,
        "_has_come_meanwhile(request.decision, history, ports)",
        when.the_job_ends_before_the_wait,
    ),
    # The job
    Guard(
        "that no rank may still write",
        launch_gang.launch_gang,
        "may_write(task, ports)",
        when.a_person_has_restarted_it_elsewhere,
    ),
    Guard("which ranks are to be stopped", stop_gang.stop_and_resume, "may_write(task, ports)", when.a_gpu_is_lost),
    Guard(
        "that a relaunch is newer than the fault",
        stop_gang.is_newer_than_fault,
        "is_restart and (run.started_at > fault_at or _is_elsewhere(run, request))",
        when.another_incident_has_restarted_it,
    ),
    Guard(
        "that a late event is older than the record",
        wakeup._advanced,
        "_ORDER[change.status] <= _ORDER[task.status]",
        when.a_rank_runs_after_it_stopped,
    ),
    Guard(
        "which task is the rank's",
        wakeup._advanced,
        "task.task_id not in ('', change.task_id)",
        when.an_older_task_stops,
    ),
    Guard(
        "that the scheduler hears the machine",
        ask_after_ranks._change,
        "seen.status != 'STOPPED' and (not seen.is_connected)",
        when.a_machine_is_not_heard,
    ),
    Guard(
        "that a task can be forgotten",
        ask_after_ranks._change,
        "is_forgotten and (not _may_be_forgotten(one, ports))",
        when.a_task_is_not_known_yet,
    ),
    # Humans
    Guard(
        "observe mode", brakes.held_back, "mode_of(say, fault, fault.action) is Mode.observe", when.the_pool_is_observed
    ),
    Guard("an opt-out", RecoveryPolicy.why_opted_out, "node_id in self.opted_out", when.the_node_is_opted_out),
    Guard(
        "a paused node",
        Surroundings.why_paused,
        "self.node_paused_until is not None and self.node_paused_until > now",
        when.the_node_is_paused,
    ),
    Guard("a paused pool", Surroundings.why_paused, "self.pool.why_paused(now)", when.the_pool_is_paused, "''"),
    Guard(
        "a pause in the middle",
        brakes.held_in_the_middle,
        "why_hands_off(say, fault)",
        when.it_is_paused_in_the_middle,
        "''",
    ),
    Guard(
        "the question", brakes.approval, "mode_of(say, fault, action) is not Mode.approve", when.a_human_says_no, "True"
    ),
    Guard("the answer", brakes.approval, "answer.outcome is Outcome.DONE", when.a_human_says_no, "True"),
    Guard(
        "the time to answer",
        answer_approval.answer_approval,
        "wait.deadline_at <= ports.clock()",
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
        "an answer that came between two calls",
        wait_for_approval.wait_for_approval,
        "(before := recorded_answer(question, history)) is not None",
        when.a_human_answers_between_two_calls,
    ),
    Guard(
        "a reset that came meanwhile",
        brakes_by_hand.trip_breaker,
        "known.breaker_reset_at != seen.breaker_reset_at",
        when.a_human_resets_the_breaker_meanwhile,
    ),
    Guard("the breaker", brakes.breaker, "not pool.is_tripped and cause is None", when.many_fail_for_one_cause, "True"),
)
