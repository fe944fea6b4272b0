"""Defines every metric of nodeheal once: functions emit them, alarms and the dashboard read them.

A metric costs money for each combination of its dimensions' values, so dimensions are few and closed: never a node, an
incident or a job. docs/metrics.md has the cost.
"""

from dataclasses import dataclass

from nodeheal.contract import names

COUNT, SECONDS, PERCENT = "Count", "Seconds", "Percent"


@dataclass(frozen=True)
class Metric:
    """One metric: `what` it counts or measures, and its dimensions."""

    name: str
    what: str
    dimensions: tuple[str, ...] = ()
    unit: str = COUNT
    namespace: str = names.METRICS_NAMESPACE


# What nodes report, and what follows
FAULTS_REPORTED = Metric("FaultsReported", "faults that nodes and AWS reported", ("Family", "Verdict"))
FAULTS_BY_CODE = Metric("FaultsByCode", "faults that nodes and AWS reported, by code", ("Pool", "Code"))
# AWS's Neuron node problem detector has these names and this namespace: dashboards and alarms need no change.
NEURON_HAS_ERROR = {
    code: Metric(
        f"{names.NEURON_ERROR}{code}", f"reports of {code} by Neuron devices", namespace=names.NEURON_METRICS_NAMESPACE
    )
    for code in (
        "SRAM_UNCORRECTABLE_ERROR",
        "NC_UNCORRECTABLE_ERROR",
        "HBM_UNCORRECTABLE_ERROR",
        "DMA_ERROR",
        "HANG_ON_COLLECTIVES",
    )
}
INCIDENTS_OPENED = Metric("IncidentsOpened", "incidents, by their first decision", ("Pool",))
INCIDENTS_ENDED = Metric("IncidentsEnded", "incidents that ended, by how", ("Pool", "Ending"))
HANDED_OVER = Metric("HandedOver", "incidents that ended with a human, by why", ("Escalation",))

# Actions
DECISIONS_TAKEN = Metric("DecisionsTaken", "decisions, by the step that they ask for", ("Step",))
STEPS_ENDED = Metric("StepsEnded", "steps that ended, by outcome", ("Step", "Outcome"))
ATTEMPTS_SPENT = Metric("AttemptsSpent", "attempts that were reserved", ("Action",))
ATTEMPTS_REFUSED = Metric("AttemptsRefused", "attempts that the ledger refused", ("Action",))
APPROVALS_ASKED = Metric("ApprovalsAsked", "questions to a human")
APPROVALS_ANSWERED = Metric("ApprovalsAnswered", "questions that were answered in time", ("Answer",))
APPROVALS_LATE = Metric("ApprovalsLate", "questions that nobody answered in time")

# Durations
FAULT_TO_ISOLATED = Metric("FaultToIsolated", "from the fault until its node takes no work", ("Pool",), SECONDS)
ISOLATED_TO_PROVEN = Metric("IsolatedToProven", "from then until a node passed its diagnostics", ("Pool",), SECONDS)
FAULT_TO_RETURNED = Metric("FaultToReturned", "from the fault until the node is back", ("Pool",), SECONDS)
FAULT_TO_JOB_RUNNING = Metric("FaultToJobRunning", "from the fault until its job runs again", ("Pool",), SECONDS)

# State, each minute
SLOTS_HELD = Metric("BudgetSlotsHeld", "nodes that hold a slot of the disruption budget", ("Pool",))
SLOTS_LIMIT = Metric("BudgetSlotsLimit", "slots that the budget has", ("Pool",))
JOBS_SHOWING_STEPS = Metric("JobsShowingSteps", "running jobs that show steps", ("Pool",))
JOBS_WITH_FINDINGS = Metric("JobsWithFindings", "running jobs of which something is wrong", ("Pool",))
FLEET_GOOD = Metric("FleetGood", "accelerators in service, times those that train as usual", ("Pool",), PERCENT)
IN_LINE = Metric("IncidentsInLine", "incidents that wait for a slot, in all pools")
BREAKERS_OPEN = Metric("BreakersOpen", "pools whose breaker is open")

# Delivery of emails and messages
NOTIFICATIONS_SENT = Metric("NotificationsSent", "emails handed to SNS", ("Severity",))
NOTIFICATIONS_FOLDED = Metric("NotificationsFolded", "emails skipped, because they had been sent before")
MESSAGES_QUARANTINED = Metric("MessagesQuarantined", "messages that could not be read", ("Function",))
POLICY_REFUSED = Metric("PolicyRefused", "times that the deployed policy was not the active one")

METRICS = (
    *(value for value in list(globals().values()) if isinstance(value, Metric)),
    *NEURON_HAS_ERROR.values(),
)
