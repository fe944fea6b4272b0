"""What a node is asked before and after it is touched: its evidence, and its diagnostics."""

from dataclasses import dataclass

from nodeheal.contract.steps import Accusation
from nodeheal.contract.vocabulary import Check


@dataclass(frozen=True)
class Upload:
    """Leave to write one object for whoever holds the ticket: this key only, at most so big, until it expires."""

    key: str
    link: str  # s3://…
    console_url: str
    ticket: str
    max_bytes: int


@dataclass(frozen=True)
class EvidenceAsked:
    """What a node is asked before anything is done to it. No upload: nothing is saved; `accused`: to be confirmed."""

    upload: Upload | None
    bug_report: bool = False
    accused: Accusation | None = None


@dataclass(frozen=True)
class Diagnosis:
    """What a diagnosis is made of: how deep, which checks, and the tests that failed before, to be rerun first."""

    level: int = 1
    checks: tuple[Check, ...] = (Check.dcgm,)
    first: tuple[str, ...] = ()
