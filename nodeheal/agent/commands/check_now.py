"""`nodeheal-agent check`: runs every check once, for a person or for a scheduler's prolog.

The exit code is that of monitoring plugins for the worst verdict: 0 OK, 1 DEGRADED, 2 FAILED, 3 UNKNOWN.
"""

import argparse
import json
import logging
import select
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from nodeheal.agent.checks.check import CheckContext, NodeCheck
from nodeheal.agent.checks.check_ipc import ProcessAnswer, verdict_on
from nodeheal.agent.checks.check_result import CheckSchedule, Problem
from nodeheal.agent.checks.check_runner import CheckRunner
from nodeheal.agent.checks.own import is_name
from nodeheal.agent.checks.registry import CHECKS, chosen, no_check
from nodeheal.agent.checks.tools import run_tool
from nodeheal.agent.runtime.config import given
from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.parsers.tool_report import EXIT_CODES, GRAVITY

NOT_HERE = "-"  # in place of a verdict: this node does not support the check
_NAME, _VERDICT = 18, 9


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CheckRow:
    """The result of one check. `verdict` is NOT_HERE where this node does not support it; the row then does not
    count.
    """

    check: str
    verdict: str
    said: tuple[str, ...]
    seconds: float = 0.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: which checks to run, and the output format."""
    names = [check.name for check in CHECKS]
    about = f"of {', '.join(names)}; own/NAME is the file NAME in `checks_dir`, own all of them"
    parser.add_argument("names", nargs="*", type=check_name, metavar="NAME", help=about)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def check_name(text: str) -> str:
    """An option's type: the name of a check, or of an operator's own check, whether or not its file exists."""
    if text not in {check.name for check in CHECKS} and not is_name(text):
        raise argparse.ArgumentTypeError(no_check(text))
    return text


def carry_out(arguments: argparse.Namespace) -> int:
    """Run the checks. Returns the exit code."""
    config = given(arguments)
    return check_now(chosen(config, tuple(arguments.names)), CheckContext(config, run_tool), as_json=arguments.json)


def check_now(checks: Sequence[NodeCheck], place: CheckContext, *, as_json: bool) -> int:
    """Run the checks and print a row for each, as they answer. Returns the exit code; UNKNOWN where no check
    can run.
    """
    if not checks:
        logger.warning("no check is run: the configuration selects none")
    rows: dict[str, CheckRow] = {}
    printed = iter(checks)
    due = next(printed, None)
    for row in rows_of(checks, place):
        rows[row.check] = row
        while due is not None and due.name in rows:
            row_due = rows[due.name]
            sys.stdout.write(json.dumps(asdict(row_due)) + "\n" if as_json else _line(row_due))
            sys.stdout.flush()
            due = next(printed, None)
    verdicts = [Verdict(row.verdict) for row in rows.values() if row.verdict != NOT_HERE]
    return EXIT_CODES[max(verdicts, key=GRAVITY.index, default=Verdict.UNKNOWN)]


def rows_of(checks: Sequence[NodeCheck], place: CheckContext) -> Iterator[CheckRow]:
    """Yield a row for each check, as they answer. All checks run at once, each in its own process and until its
    deadline.
    """
    for answer, terms, seconds in answers_of(checks, place):
        yield row_of(answer, terms, seconds)


def answers_of(
    checks: Sequence[NodeCheck], place: CheckContext
) -> Iterator[tuple[ProcessAnswer, CheckSchedule, float]]:
    """Yield each answer as it comes, with the check's schedule and the seconds that the answer took."""
    looks = CheckRunner([replace(check, stream=None) for check in checks], place)
    try:
        yield from _answers(looks)
    finally:
        looks.close()


def _answers(looks: CheckRunner) -> Iterator[tuple[ProcessAnswer, CheckSchedule, float]]:
    began = time.monotonic()
    waiting = {check.name: check for check in looks.terms}
    for name in waiting:
        looks.ask(name, {})
    news = select.poll()
    news.register(looks.descriptor, select.POLLIN)
    while waiting:  # each has its deadline
        for answer in looks.answers():
            check = waiting.pop(answer.name, None)
            if check is not None:
                yield answer, check, round(time.monotonic() - began, 1)
        news.poll(min(1.0, looks.due_in()) * 1000)


def row_of(answer: ProcessAnswer, check: CheckSchedule, seconds: float = 0.0) -> CheckRow:
    """Convert an answer into a row. A result that is not known is never OK."""
    verdict = verdict_on(answer, check)
    if verdict is None:
        return CheckRow(check.name, NOT_HERE, (f"not checked: {answer.absent}",), seconds)
    if answer.look is None:
        late = f"no answer within {check.deadline_seconds:g} s"
        return CheckRow(check.name, verdict.value, (late if answer.hung else answer.broke,), seconds)
    look = answer.look
    problems = [*look.problems, *look.happened]
    messages = [_words(problem) for problem in problems]
    messages += list(filter(None, (look.unclear, *look.doubts.values())))
    return CheckRow(check.name, verdict.value, tuple(messages) or (look.summary,), seconds)


def _words(problem: Problem) -> str:
    finding = problem.finding
    code = finding.code
    if finding.family is Family.own:  # its code is the check's name, which the row has
        code = finding.subcode or code
    first = (problem.evidence or finding.message).strip().split("\n")[0][:200]
    return f"{code}: {first}" if first else code


def _line(row: CheckRow) -> str:
    head = f"{row.check:<{_NAME}}{row.verdict:<{_VERDICT}}"
    rest = "".join(f"{'':<{_NAME + _VERDICT}}{more}\n" for more in row.said[1:])
    return f"{head}{row.said[0] if row.said else ''}\n{rest}"
