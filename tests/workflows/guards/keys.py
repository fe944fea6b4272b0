"""The guards of tests/workflows/scenarios/keys.py: where each stands, and what goes wrong without it."""

from nodeheal.operations import isolate, record, replace
from nodeheal.services.jobs import job_nodes
from nodeheal.services.recovery import reserve_attempt, return_to_service
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import keys as when

GUARDS = (
    Guard(
        "that each incident waits for a gang by itself",
        record.plan_step,
        "f'{request.incident_id}-{request.operation_turn}{suffix}'",
        when.two_incidents_wait_for_one_gang,
        "f'{request.operation_turn}{suffix}'",
    ),
    Guard(
        "that a node is good since its proof, and not since its return",
        return_to_service._return,
        "proof.proof.finished_at",
        when.it_fails_between_its_proof_and_its_return,
        "ports.clock()",
        nth=2,
    ),
    Guard(
        "that a new machine is good since its proof, and not since it serves",
        return_to_service._return,
        "proof.proof.finished_at",
        when.a_new_machine_fails_between_its_proof_and_its_work,
        "ports.clock()",
        nth=1,
    ),
    Guard(
        "that all that was reserved is given back",
        reserve_attempt.refund_attempt,
        "_reservations(request)",
        when.nothing_was_done_under_two_limits,
        "_reservations(request)[:1]",
    ),
    Guard(
        "that it is looked at again where its mark was lost",
        isolate._record_isolated,
        "ports.scheduler_of(known).placement_of(known)",
        when.people_drain_it_while_it_is_isolated,
        "placement",
    ),
    Guard(
        "that what was sent in one turn was not sent in another",
        record.plan_step,
        "f'{request.incident_id}-{request.operation_turn}{suffix}'",
        when.a_second_reboot_is_decided,
        "request.incident_id",
    ),
    Guard(
        "that each turn launches a machine of its own",
        replace._launch,
        "f'{request.incident_id[-50:]}-{request.operation_turn}'",
        when.a_second_machine_is_launched,
        "request.incident_id[-50:]",
    ),
    Guard(
        "that an earlier submission's checks are over",
        job_nodes.unfit_of,
        "f'{job.job_id}-{job.submission}-'",
        when.it_has_failed_a_check_of_an_earlier_submission,
        "f'{job.job_id}-'",
    ),
)
