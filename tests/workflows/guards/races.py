"""The guards of tests/workflows/scenarios/races.py: where each stands, and what goes wrong without it."""

from nodeheal.operations import check_node
from nodeheal.services import saving, steps
from nodeheal.services.intake import heartbeats, ingest
from nodeheal.services.jobs import job_nodes, job_steps, start_gang, submit_job
from nodeheal.services.operators import retire_node
from nodeheal.services.recovery import queue
from tests.workflows.guards.guard import Guard, not_saved, taken_for_saved
from tests.workflows.scenarios import races as when

_OPENS = "ports.incidents.open(incident, replace(node, open_incident=incident.incident_id))"
_RETIRES = "ports.nodes.save(replace(retired, is_spare=False))"
_CLAIMS = "ports.nodes.save(replace(node, claimed_by=job.job_id))"

GUARDS = (
    Guard(
        "the claim of a job",
        job_nodes._claim_one,
        _CLAIMS,
        when.a_node_is_claimed_while_a_job_claims_it,
        taken_for_saved(_CLAIMS),
    ),
    Guard(
        "the claim of a job's replacement node",
        job_nodes.claim_replacement_nodes,
        _CLAIMS,
        when.a_replacement_node_is_claimed_while_a_job_claims_it,
        taken_for_saved(_CLAIMS),
    ),
    Guard(
        "the version of a node that is retired",
        retire_node._out_of_service,
        f"not {_RETIRES}",
        when.a_node_gets_a_job_while_it_is_retired,
        not_saved(_RETIRES),
    ),
    Guard(
        "one job of a name",
        submit_job.submit_job,
        "not ports.jobs.save(job)",
        when.a_job_of_another_has_the_name,
        not_saved("ports.jobs.save(job)"),
    ),
    Guard(
        "the version of a job that is started again",
        submit_job.restart_job,
        "not ports.jobs.save(again)",
        when.two_start_a_job_again,
        not_saved("ports.jobs.save(again)"),
    ),
    Guard(
        "one run of a number",
        start_gang.record_run,
        "not ports.jobs.save_run(run)",
        when.two_record_a_run,
        not_saved("ports.jobs.save_run(run)"),
    ),
    Guard(
        "that changes of a job are written over what is stored now",
        saving.save_changed,
        "save(changed)",
        when.a_job_is_written_while_it_is_written,
        taken_for_saved("save(changed)"),
    ),
    Guard(
        "which submission a step is of",
        job_steps.job_of_request,
        "job.submission != request.submission",
        when.a_workflow_of_an_older_submission_ends,
    ),
    Guard(
        "that a directory is held while a rank may write",
        job_nodes.leave,
        "any((may_write(task, ports) for task in _begun(runs, job, ports)))",
        when.a_rank_may_still_write_when_its_job_is_over,
    ),
    Guard(
        "that a boot that a heartbeat tells of is on record",
        heartbeats._record_boot,
        "not ports.nodes.save(known)",
        when.a_node_is_written_while_its_beat_tells_of_a_boot,
        not_saved("ports.nodes.save(known)"),
    ),
    Guard(
        "which boot has passed a check",
        check_node._settle,
        "has_passed and node.boot_id == boot_id",
        when.a_node_has_booted_since_it_was_checked,
        "has_passed",
    ),
    Guard(
        "that a breaker is closed when the sweep wakes who waits for it",
        queue.wake_after_reset,
        "ports.pools.get(pool).is_tripped",
        when.a_breaker_is_open_when_the_sweep_looks,
    ),
    Guard(
        "whose replacement nodes are let go",
        steps.clear_if_owner,
        "any((getattr(node, name) != whose for name, whose in held.items()))",
        when.another_incident_holds_a_neighbour_of_what_is_released,
    ),
    Guard(
        "that an incident was opened",
        ingest._take_fault,
        _OPENS,
        when.a_node_fails_twice_in_one_moment,
        taken_for_saved(_OPENS),
    ),
    Guard(
        "that a rank is written where it is now",
        saving.save_changed,
        "save(changed)",
        when.two_ranks_end_in_one_moment,
        taken_for_saved("save(changed)"),
    ),
)
