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
    verdicts = [verdict_of(problem.finding) for problem in (*answer.look.problems, *answer.look.happened)]
    return max([*verdicts, *[Verdict.UNKNOWN] * bool(answer.look.why_unclear)], key=GRAVITY.index, default=Verdict.OK)


def dumped(answer: ProcessAnswer) -> bytes:
    """Encode the answer as one line without a newline. Bytes of file names that are not text become `?`."""
    text = json.dumps(asdict(answer), separators=(",", ":"), default=dict, ensure_ascii=False)
    return text.encode("utf-8", "replace")


def answer_of(line: bytes) -> ProcessAnswer:
    """Decode an answer that `dumped` encoded."""
    fields = json.loads(line)
    return ProcessAnswer(fields["name"], _look(fields["look"]), fields["hung"], fields["broke"], fields["absent"])


def finding_of(fields: Mapping[str, Any]) -> Finding:
    """Decode a finding from its mapping."""
    known = {**fields, "family": Family(fields["family"])}
    return Finding(**{**known, "verdict": Verdict(fields["verdict"]) if fields.get("verdict") else None})


def _look(fields: Mapping[str, Any] | None) -> NodeCheckResult | None:
    if fields is None:
        return None
    kinds = {kind: tuple(_problem(problem) for problem in fields[kind]) for kind in ("problems", "happened")}
    accelerators = tuple(Accelerator(**accelerator) for accelerator in fields["accelerators"])
    return NodeCheckResult(**{**fields, **kinds, "accelerators": accelerators})


def _problem(fields: Mapping[str, Any]) -> Problem:
    return Problem(**{**fields, "finding": finding_of(fields["finding"])})
