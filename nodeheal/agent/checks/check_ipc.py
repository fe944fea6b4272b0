"""Encodes what a check process sends to the agent: one line of JSON for each result."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from nodeheal.agent.checks.check_result import CheckSchedule, NodeCheckResult, Problem
from nodeheal.agent.transport.event import Accelerator, verdict_of
from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.parsers.finding import Finding
from nodeheal.parsers.tool_report import GRAVITY

READ_BYTES = 64 * 1024


@dataclass
class Lines:
    """Assembles whole lines from pieces."""

    rest: bytes = b""

    def of(self, data: bytes) -> list[bytes]:
        """Add a piece. Returns the lines that are now complete."""
        *whole, self.rest = (self.rest + data).split(b"\n")
        return whole


@dataclass(frozen=True)
class ProcessAnswer:
    """A check's answer: its result; or that it has hung, that it `broke`, or that it is `absent`: why this node does
    not support the check now.
    """

    name: str
    look: NodeCheckResult | None = None
    hung: bool = False
    broke: str = ""
    absent: str = ""


def verdict_on(answer: ProcessAnswer, check: CheckSchedule) -> Verdict | None:
    """Return the worst verdict in the answer; None where the node does not support the check. Uncertainty is
    never OK.
    """
    if answer.absent:
        return None
    if answer.look is None:
        return verdict_of(check.hang) if answer.hung and check.hang else Verdict.UNKNOWN
    found = [verdict_of(problem.finding) for problem in (*answer.look.problems, *answer.look.happened)]
    return max([*found, *[Verdict.UNKNOWN] * bool(answer.look.why_unclear)], key=GRAVITY.index, default=Verdict.OK)


def dumped(answer: ProcessAnswer) -> bytes:
    """Encode the answer as one line without a newline. Bytes of file names that are not text become `?`."""
    text = json.dumps(asdict(answer), separators=(",", ":"), default=dict, ensure_ascii=False)
    return text.encode("utf-8", "replace")


def answer_of(line: bytes) -> ProcessAnswer:
    """Decode an answer that `dumped` encoded."""
    said = json.loads(line)
    return ProcessAnswer(said["name"], _look(said["look"]), said["hung"], said["broke"], said["absent"])


def finding_of(said: Mapping[str, Any]) -> Finding:
    """Decode a finding from its mapping."""
    known = {**said, "family": Family(said["family"])}
    return Finding(**{**known, "verdict": Verdict(said["verdict"]) if said.get("verdict") else None})


def _look(said: Mapping[str, Any] | None) -> NodeCheckResult | None:
    if said is None:
        return None
    kinds = {kind: tuple(_problem(one) for one in said[kind]) for kind in ("problems", "happened")}
    accelerators = tuple(Accelerator(**one) for one in said["accelerators"])
    return NodeCheckResult(**{**said, **kinds, "accelerators": accelerators})


def _problem(said: Mapping[str, Any]) -> Problem:
    return Problem(**{**said, "finding": finding_of(said["finding"])})
