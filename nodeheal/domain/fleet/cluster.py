"""The cluster of a scheduler that a node or a job belongs to."""

from dataclasses import dataclass

from nodeheal.contract.vocabulary import SchedulerKind


@dataclass(frozen=True, order=True)
class Cluster:
    """A cluster, by the kind of its scheduler and the name that it has there: clusters of two kinds may share a name.

    How it is reached is not stored: its scheduler's adapter asks AWS, which always knows the present answer.
    """

    kind: SchedulerKind
    name: str
