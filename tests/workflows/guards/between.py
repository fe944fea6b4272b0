"""The guards of tests/workflows/scenarios/between.py: where each stands, and what goes wrong without it."""

from nodeheal.operations import replace
from nodeheal.services import saving
from nodeheal.services.jobs import ask_for_checkpoint
from nodeheal.services.notify import deliver_notification, warn_job
from nodeheal.services.recovery import reserve_attempt, spares, wait_for_news
from tests.workflows.guards.guard import Guard, not_saved, taken_for_saved
from tests.workflows.scenarios import between as when
from tests.workflows.scenarios import limits

_WARNED = "ports.incidents.append(request.incident_id, entry)"

GUARDS = (
    # Before the wait is stored
    Guard(
        "a slot that was free before the wait",
        wait_for_news._call_for_a_free_slot,
        "len(ports.pools.holders(pool)) < (slots or 0)",
        when.a_slot_becomes_free_before_it_waits,
    ),
    # When it is called again
    Guard(
        "that a spare is claimed already",
        replace._start,
        "claimed_spare(node, request.incident_id, ports)",
        when.a_swap_is_called_again,
        "None",
    ),
    Guard(
        "who has claimed a spare",
        spares.claimed_spare,
        "n.open_incident == incident_id",
        when.a_free_node_is_nobodys_spare_yet,
        "True",
    ),
    Guard(
        "that an attempt was granted",
        reserve_attempt._reserve,
        "not granted",
        limits.the_last_attempt_goes_to_another,
    ),
    Guard(
        "that there is a limit",
        reserve_attempt._reservations,
        "not request.decision.reserve",
        when.a_reboot_was_decided_without_a_limit,
    ),
    Guard(
        "who is sending an email",
        deliver_notification._deliver,
        "delivery is Delivery.BUSY",
        when.an_email_is_being_sent_by_one_who_dies,
    ),
    Guard(
        "that the newest word is on record",
        saving.save_changed,
        "save(changed)",
        when.something_older_is_said_while_something_newer_is_written,
        taken_for_saved("save(changed)"),
    ),
    # Checkpoints that are asked for
    Guard(
        "that a job was warned",
        warn_job.warn_job,
        f"not {_WARNED}",
        when.a_job_was_warned_before,
        not_saved(_WARNED),
    ),
    Guard(
        "that the broken node is not asked alone",
        ask_for_checkpoint.ask_for_checkpoint,
        "not peers",
        when.only_the_broken_node_has_a_rank,
    ),
)
