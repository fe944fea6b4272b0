"""The part of the policy document about what is proven and saved before and after a node is touched."""

from dataclasses import dataclass

from pydantic import Field

from nodeheal.contract.health_event import Frozen
from nodeheal.contract.steps import Accusation
from nodeheal.contract.vocabulary import Check

MEBIBYTE = 1024 * 1024
# A node that is about to be rebooted is given minutes for its last words, not hours.
LONGEST_SECONDS = 1_800


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


class Evidence(Frozen):
    """What a node can tell of its fault is saved before it is rebooted or replaced: afterwards it is gone."""

    enabled: bool = Field(default=True, description="save it")
    seconds: int = Field(
        default=90, gt=0, le=LONGEST_SECONDS, description="for all of it, upload included; then the recovery goes on"
    )
    max_mb: int = Field(default=32, gt=0, le=1_024, description="of the archive; what is biggest is left out first")
    bug_report: bool = Field(
        default=False, description="run nvidia-bug-report.sh as well: minutes, so `seconds` must allow for it"
    )

    @property
    def max_bytes(self) -> int:
        """How big an archive may be."""
        return self.max_mb * MEBIBYTE
