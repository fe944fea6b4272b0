"""Maps words of version 0.1 that are still read. They are removed in version 0.3.

Standard library only: the agent imports the vocabulary, which uses this table.
"""

# An incident that ended under version 0.1, and a program that filters by its words, still have these.
ESCALATIONS = {
    "HELD_IN_THE_MIDDLE": "RECOVERY_BLOCKED",
    "JOB_OUTLASTS_THE_WAIT": "JOB_END_TIMEOUT",
    "ASKS_FOR_A_HUMAN": "MANUAL_REVIEW_REQUIRED",
    "NEVER_SETTLED": "STARTUP_UNCONFIRMED",
    "OTHER_OWNER": "EXTERNAL_REMEDIATOR",
    "ISOLATED_AS_ASKED": "ISOLATED_ON_REQUEST",
    "BROKEN_NODE_LEFT": "REPAIR_PENDING",
    "RULES_CHANGED": "POLICY_CHANGED",
    "TOO_MANY_DECISIONS": "DECISION_LIMIT",
}

# Under `correlation` of a policy document.
POLICY_KEYS = {"echoes": "secondary_faults"}
