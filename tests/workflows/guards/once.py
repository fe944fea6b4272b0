"""The guards of tests/workflows/scenarios/once.py: where each stands, and the scenario that goes wrong without it."""

from nodeheal.operations import launch_gang, wait
from nodeheal.services import sweep
from nodeheal.services.intake import ingest
from nodeheal.services.recovery import decide_next_step
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import once as when

GUARDS = (
    Guard(
        "that a fault joins",
        ingest._take_fault,
        "node.open_incident and (not _is_abandoned(node, ports))",
        when.two_faults_one_after_the_other,
    ),
    Guard(
        "that a broken recovery is over",
        ingest._is_abandoned,
        "ports.incidents.incident(node.open_incident).state is IncidentState.ESCALATED",
        when.a_recovery_broke_before,
    ),
    Guard(
        "that a fault is settled",
        ingest._take_fault,
        "settled and (not _is_open_again(event, node, settled, ports, policy))",
        when.a_harmless_fault_repeats,
    ),
    Guard("faults of the lifeless", ingest._why_stale, "node.state in _LIFELESS", when.a_retired_node_reports),
    Guard(
        "that an incident is ending",
        ingest._may_end_without_it,
        "last is None or last.ending is None or last.events_seen >= history.event_count",
        when.a_fault_comes_at_the_end,
        "True",
    ),
    Guard("that news is brought", ingest._join, "_is_unseen(history)", when.it_grows_worse),
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
        "that this turn has launched it",
        launch_gang._start,
        "last.why != launch_id(request)",
        when.a_launch_is_repeated,
        "True",
    ),
    Guard(
        "what came before the wait",
        wait._start,
        "_has_come_meanwhile(request.decision, history, ports)",
        when.the_job_ends_before_the_wait,
    ),
)
