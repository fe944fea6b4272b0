"""Every guard, by topic, and the scenario that goes wrong without it."""

from tests.workflows.guards import (
    boots,
    ends,
    given_back,
    humans,
    jobs,
    launches,
    limits,
    machines,
    once,
    owners,
    races,
    saves,
    stops,
    successors,
    turns,
    writes,
)

GUARDS = (
    *writes.GUARDS,
    *saves.GUARDS,
    *limits.GUARDS,
    *owners.GUARDS,
    *boots.GUARDS,
    *machines.GUARDS,
    *once.GUARDS,
    *jobs.GUARDS,
    *humans.GUARDS,
    *races.GUARDS,
    *turns.GUARDS,
    *stops.GUARDS,
    *given_back.GUARDS,
    *ends.GUARDS,
    *launches.GUARDS,
    *successors.GUARDS,
)
