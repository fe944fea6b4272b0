"""What a node is asked for: its evidence before it is touched, and its diagnostics."""

from dataclasses import dataclass

from nodeheal.contract.steps import Accusation
from nodeheal.contract.vocabulary import Check


@dataclass(frozen=True)
class Upload:
    """A permission to write one object: this key only, up to this size, until it expires."""

    key: str
    link: str  # s3://…
    console_url: str
    ticket: str
    max_bytes: int


@dataclass(frozen=True)
class EvidenceAsked:
    """What a node is asked for before anything is done to it.

    No upload: nothing is saved. `accused`: it is to confirm that.
    """

    upload: Upload | None
    bug_report: bool = False
    accused: Accusation | None = None


@dataclass(frozen=True)
class Diagnosis:
    """A diagnosis: its level, its checks, and the tests that failed before, which are rerun first."""

    level: int = 1
    checks: tuple[Check, ...] = (Check.dcgm,)
    first: tuple[str, ...] = ()
