"""The guards of tests/workflows/scenarios/ends.py: where each stands, and what goes wrong without it."""

from nodeheal.services.intake import ingest
from nodeheal.services.recovery import decide_next_step, end_incident, unmanaged_tasks
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import ends as when

GUARDS = (
    Guard(
        "that an incident ends once",
        end_incident.end_incident,
        "history.incident.ending is None",
        when.a_human_closes_it_before_its_end_is_written_again,
        "True",
    ),
    Guard(
        "that what was asked for by hand is no fault of the node",
        end_incident._let_go,
        "not _is_no_fault(history.incident)",
        when.a_reboot_is_asked_for,
        "True",
    ),
    Guard(
        "that what has isolated nothing has recovered nothing",
        end_incident._let_go,
        "seen.is_isolated",
        when.only_the_job_restarts,
        "True",
    ),
    Guard(
        "that a spare without proof is no spare",
        end_incident._let_go,
        "node_id != history.incident.node_id and (not seen.is_proven)",
        when.its_spare_fails_too,
    ),
    Guard(
        "that a spare has its proof",
        end_incident._let_go,
        "not seen.is_proven",
        when.its_spare_passes,
        "True",
    ),
    Guard(
        "that who is out of service stays with its incident",
        end_incident._let_go,
        "node.state in OUT_OF_SERVICE",
        when.its_repair_does_not_help,
    ),
    Guard(
        "that only what was decided on is settled",
        end_incident._settled,
        "history.event_count <= decided.events_seen",
        when.another_fault_comes_at_the_end,
        "True",
    ),
    Guard(
        "that the next run's faults are news",
        end_incident._settled,
        "seen.restart is not None and seen.restart.outcome is Outcome.DONE",
        when.the_next_run_fails_alike,
    ),
    Guard(
        "that what a human has closed stays closed",
        decide_next_step._decide_turn,
        "history.incident.state is IncidentState.CLOSED",
        when.it_is_given_back_while_it_waits,
    ),
    Guard(
        "that no task of others is started on what is out of service",
        unmanaged_tasks._home,
        "node is not None and node.state not in {*OUT_OF_SERVICE, NodeState.RETIRED}",
        when.its_repair_does_not_help_and_a_task_was_stopped,
        "node is not None",
    ),
    Guard(
        "that no task of others is started on what was not proven",
        unmanaged_tasks._home,
        "seen.is_proven",
        when.its_spare_fails_too_and_a_task_was_stopped,
        "True",
    ),
    Guard(
        "that a task of others is stopped once",
        unmanaged_tasks.stop_unmanaged_tasks,
        "by_us is None",
        when.a_task_is_forgotten_while_it_is_stopped,
        "True",
    ),
    Guard(
        "that a human has what is quarantined",
        ingest._is_abandoned,
        "node.state in OUT_OF_SERVICE",
        when.what_is_quarantined_reports_again,
    ),
    Guard(
        "that an incident keeps its node",
        ingest._may_end_without_it,
        "node.state not in OUT_OF_SERVICE",
        when.what_is_to_stay_quarantined_reports_again,
        "True",
    ),
)
