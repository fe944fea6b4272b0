"""What the prober tells the agent, as lines of JSON: what it looks at, then each look."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nodeheal.agent.checks.look import Look, Problem, Terms
from nodeheal.agent.config import ConfigError
from nodeheal.contract.evidence.finding import Finding
from nodeheal.contract.vocabulary import Family, Verdict

READ_BYTES = 64 * 1024


@dataclass
class Lines:
    """Whole lines out of pieces."""

    rest: bytes = b""

    def of(self, data: bytes) -> list[bytes]:
        """Those that are whole now."""
        *whole, self.rest = (self.rest + data).split(b"\n")
        return whole


@dataclass(frozen=True)
class Answer:
    """A look; or that it has hung, or `broke` by itself, or is `absent`: why this node cannot be looked at so now."""

    name: str
    look: Look | None = None
    hung: bool = False
    broke: str = ""
    absent: str = ""


def dumped(answer: Answer) -> bytes:
    """The answer, without a newline in it. Names of files may hold bytes that are no text: these become `?`."""
    text = json.dumps(asdict(answer), separators=(",", ":"), default=dict, ensure_ascii=False)
    return text.encode("utf-8", "replace")


def answer_of(line: bytes) -> Answer:
    """The answer that was dumped."""
    said = json.loads(line)
    return Answer(said["name"], _look(said["look"]), said["hung"], said["broke"], said["absent"])


def introduced(terms: Sequence[Terms], refused: str = "") -> bytes:
    """What is looked at, as the prober's first line; or why nothing is: the configuration cannot be followed."""
    return json.dumps({"terms": [asdict(one) for one in terms], "refused": refused}).encode()


def terms_of(line: bytes) -> tuple[Terms, ...]:
    """What was introduced. Raises ConfigError where it was refused."""
    said = json.loads(line)
    if said["refused"]:
        raise ConfigError(said["refused"])
    return tuple(_terms(one) for one in said["terms"])


def finding_of(said: Mapping[str, Any]) -> Finding:
    """The finding that was dumped as a mapping."""
    return Finding(**{**said, "family": Family(said["family"])})


def _look(said: Mapping[str, Any] | None) -> Look | None:
    if said is None:
        return None
    kinds = {kind: tuple(_problem(one) for one in said[kind]) for kind in ("problems", "happened")}
    return Look(**{**said, **kinds})


def _problem(said: Mapping[str, Any]) -> Problem:
    return Problem(**{**said, "finding": finding_of(said["finding"])})


def _terms(said: Mapping[str, Any]) -> Terms:
    hang = finding_of(said["hang"]) if said["hang"] else None
    return Terms(**{**said, "floor": Verdict(said["floor"]), "hang": hang})
