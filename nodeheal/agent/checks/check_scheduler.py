"""Decides when each check runs, and which results are changes: a problem is reported when it begins and when it is
over.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from nodeheal.agent.checks.check_ipc import ProcessAnswer, finding_of, verdict_on
from nodeheal.agent.checks.check_result import CheckSchedule, NodeCheckResult, Problem, State
from nodeheal.agent.runtime.jitter import between
from nodeheal.agent.transport.event import Accelerator, verdict_of
from nodeheal.agent.transport.gauges import Sample
from nodeheal.contract.vocabulary import Verdict
from nodeheal.parsers.finding import Finding
from nodeheal.parsers.tool_report import GRAVITY

# First runs are spread, so that a rack that starts at once does not check or report in step.
FIRST_LOOKS_WITHIN_SECONDS = 10.0
# A stream's process stays and shares unchanged memory pages with the agent. It starts after the agent has run all its
# code once, which saves a MiB.
STREAMS_WITHIN_SECONDS = FIRST_LOOKS_WITHIN_SECONDS + 2.0
# An intermittent problem is over only when it has stayed away for several runs.
LOOKS_TO_BE_OVER = 2
STREAM_PATIENCE_SECONDS = 60.0  # pause before a stream that has ended is started again
ABSENT_SECONDS = 600.0  # pause before a check that the node did not support is tried again
STATE_KEY = "checks"
Key = tuple[str, str, str, str]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CheckChange:
    """A problem that has begun or is over, or an event that has happened."""

    check: str
    problem: Problem
    is_over: bool = False
    since: float = 0.0  # epoch seconds; with the check's name it makes the event id stable


@dataclass
class _CheckState:
    """The state of one check."""

    check: CheckSchedule
    due_at: float
    state: State = field(default_factory=dict)
    active: dict[Key, tuple[Finding, float]] = field(default_factory=dict)  # reported, and since when
    streaks: dict[Key, int] = field(default_factory=dict)  # results in a row that contradict what was reported
    is_asked: bool = False
    complaint: str = ""
    # Of the last result: a value that is no longer measured disappears.
    gauges: Mapping[str, float] = field(default_factory=dict)
    called: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # as above
    accelerators: tuple[Accelerator, ...] = ()  # of the last result that had all of them
    # Of the last answer; None before the first, and where the node does not support the check.
    verdict: Verdict | None = None
    asked_at: float | None = None
    answered_at: float | None = None
    seconds: float | None = None  # duration of the last run; a stream has none


class CheckScheduler:
    """All checks of a node. Store the changes that it returns and `dump()` in one transaction, as with the
    kernel log.
    """

    def __init__(
        self, checks: Sequence[CheckSchedule], boot_id: str, saved: State, uptime_seconds: float, now: float
    ) -> None:
        """`saved`: the dump of the last run; one of another boot is discarded. `now`: monotonic seconds."""
        known = _known(saved, boot_id)
        self._boot_id = boot_id
        self._courses = {check.name: _begun(check, known.get(check.name), uptime_seconds, now) for check in checks}
        # A reported problem of a check that is no longer selected stays open: its end is reported when the check is
        # selected again.
        left = known.keys() - self._courses.keys()
        self._left = {name: known[name] for name in sorted(left) if _has_told(name, known[name])}

    def gauges(self) -> dict[str, float]:
        """Return the checks' measured values. Safe from any thread: mappings are replaced, never changed."""
        return {name: value for course in self._courses.values() for name, value in course.gauges.items()}

    def called(self) -> list[Mapping[str, str]]:
        """Return the other names of each measured thing."""
        return [names for course in self._courses.values() for names in course.called.values()]

    def accelerators(self) -> list[Accelerator]:
        """Return all accelerators of the node, as they were when all of them answered."""
        return [part for course in self._courses.values() for part in course.accelerators]

    def samples(self, now: float) -> Iterator[Sample]:
        """Return samples of each check's state and of the names of measured things. Safe from any thread."""
        for name, course in self._courses.items():
            for which, names in course.called.items():
                kind, _, index = which.partition(":")
                yield Sample(f"{kind}_info", 1, {kind: index, **names})
            if course.verdict is not None:
                for verdict in Verdict:
                    yield Sample("check_verdict", course.verdict is verdict, {"check": name, "verdict": verdict.value})
            if course.answered_at is not None:
                yield Sample("check_age_seconds", now - course.answered_at, {"check": name})
            if course.seconds is not None:
                yield Sample("check_duration_seconds", course.seconds, {"check": name})

    def lasting(self) -> list[Key]:
        """Return the problems that last. Safe from any thread: the keys are copied at once."""
        return [key for course in self._courses.values() for key in list(course.active)]

    def due_in(self, now: float) -> float:
        """Seconds until a check is due."""
        waiting = [course.due_at - now for course in self._courses.values() if not course.is_asked]
        return max(0.0, min(waiting, default=FIRST_LOOKS_WITHIN_SECONDS))

    def ask(self, now: float, ask: Callable[[str, State], None]) -> None:
        """Start every check that is due."""
        for name, course in self._courses.items():
            if not course.is_asked and course.due_at <= now:
                course.is_asked, course.asked_at = True, now
                ask(name, course.state)

    def take(self, answer: ProcessAnswer, now: float, wall: float) -> list[CheckChange]:
        """Process an answer. Returns the changes. `wall`: epoch seconds."""
        course = self._courses[answer.name]
        check = course.check
        course.verdict, course.answered_at = verdict_on(answer, check), now
        if course.asked_at is not None and not check.goes_on:
            course.seconds = now - course.asked_at
        if answer.absent:  # a driver may be loaded later
            course.is_asked, course.due_at, course.gauges, course.called = False, now + ABSENT_SECONDS, {}, {}
            if course.active:
                self._complain(course, f"{answer.absent}; the problems that the check has reported stay open")
            return []
        is_going_on = check.goes_on and answer.look is not None
        if not is_going_on:
            patience = STREAM_PATIENCE_SECONDS if check.goes_on else check.interval_seconds
            course.is_asked, course.due_at = False, now + patience
        look = answer.look or _look_of(answer, check)
        self._complain(course, look.why_unclear)
        course.state = look.state if answer.look is not None else course.state
        course.gauges, course.called = look.gauges, look.called
        course.accelerators = look.accelerators or course.accelerators
        happened = [
            CheckChange(check.name, problem, since=wall) for problem in look.happened if _counts(problem, check)
        ]
        return [*happened, *_changes(course, look, wall)]

    def dump(self) -> dict[str, object]:
        """Return the state for the next run as JSON."""
        courses = {
            name: {
                "state": course.state,
                "active": [{"finding": asdict(finding), "since": since} for finding, since in course.active.values()],
            }
            for name, course in self._courses.items()
        }
        return {STATE_KEY: {"boot_id": self._boot_id, "courses": {**self._left, **courses}}}

    @staticmethod
    def _complain(course: _CheckState, unclear: str) -> None:
        """Log the trouble once, not at every run."""
        if unclear and unclear != course.complaint:
            logger.warning(
                "a check could not run to its end or gave no clear result",
                extra={"check": course.check.name, "why": unclear},
            )
        course.complaint = unclear


def key_of(finding: Finding) -> Key:
    """The key by which two problems are the same."""
    return (finding.family.value, finding.code, finding.subcode or "", finding.component or "")


def _known(saved: State, boot_id: str) -> Mapping[str, object]:
    """Parse the stored state of each check on this boot. Another version of the agent may have written it."""
    kept = saved.get(STATE_KEY)
    courses = kept.get("courses") if isinstance(kept, dict) and kept.get("boot_id") == boot_id else None
    return courses if isinstance(courses, dict) else {}


def _begun(check: CheckSchedule, known: Any, uptime_seconds: float, now: float) -> _CheckState:
    # A clock that jumps while the node starts must not delay checks for longer than a boot takes.
    unsettled = max(0.0, check.settle_seconds - max(0.0, uptime_seconds))
    first = unsettled + _first_after(check)
    state, problems = _remembered(check.name, known) if known else ({}, [])
    return _CheckState(check, now + first, state, {key_of(finding): (finding, since) for finding, since in problems})


def _first_after(check: CheckSchedule) -> float:
    """Seconds from the start to the first run, on a node that has been up for a while."""
    if check.goes_on:
        return between(FIRST_LOOKS_WITHIN_SECONDS, STREAMS_WITHIN_SECONDS)
    return between(0, min(FIRST_LOOKS_WITHIN_SECONDS, check.interval_seconds))


def _has_told(name: str, known: Any) -> bool:
    """Whether a check that is not selected has open problems; logs that once a start."""
    _, open_problems = _remembered(name, known)
    if open_problems:
        open_ones = ", ".join(sorted(finding.code for finding, _ in open_problems))
        logger.warning(
            "the configuration no longer selects a check; its open problems are no longer watched and stay open",
            extra={"check": name, "problems": open_ones},
        )
    return bool(open_problems)


def _remembered(name: str, known: Any) -> tuple[State, list[tuple[Finding, float]]]:
    """Parse the state and what was reported; nothing where it is not valid: a second report is better than none."""
    try:
        state: State = dict(known["state"])
        return state, [(finding_of(entry["finding"]), float(entry["since"])) for entry in known["active"]]
    except (KeyError, TypeError, ValueError) as error:
        logger.warning("the stored state of a check is not valid; it is discarded", extra={"check": name, "why": error})
        return {}, []


def _look_of(answer: ProcessAnswer, check: CheckSchedule) -> NodeCheckResult:
    """The result of a run that did not end. Other open problems are assumed to persist."""
    if not answer.hung:
        return NodeCheckResult(unclear=answer.broke)
    late = f"no answer within {check.deadline_seconds:g} s"
    return NodeCheckResult((Problem(check.hang, late),) if check.hang else (), unclear=late)


def _counts(problem: Problem, check: CheckSchedule) -> bool:
    return GRAVITY.index(verdict_of(problem.finding)) >= GRAVITY.index(check.floor)


def _is_graver(problem: Problem, reported_finding: Finding) -> bool:
    """Whether the verdict is worse than the reported one: an operator's own check may give one code several
    verdicts.
    """
    return GRAVITY.index(verdict_of(problem.finding)) > GRAVITY.index(verdict_of(reported_finding))


def _is_open(key: Key, look: NodeCheckResult) -> bool:
    """Whether the result leaves this problem undecided."""
    return bool(look.unclear) or key[3] in look.doubts


def _changes(course: _CheckState, look: NodeCheckResult, wall: float) -> list[CheckChange]:
    check = course.check
    problems = {key_of(problem.finding): problem for problem in look.problems if _counts(problem, check)}
    strange = {key for key in problems if key not in course.active or _is_graver(problems[key], course.active[key][0])}
    gone = {key for key in course.active.keys() - problems.keys() if not _is_open(key, look)}
    kept = {key: looks for key, looks in course.streaks.items() if _is_open(key, look)}
    course.streaks = {**kept, **{key: course.streaks.get(key, 0) + 1 for key in {*strange, *gone}}}
    news = []
    for key in sorted(strange):
        if course.streaks[key] >= max(check.confirm, problems[key].confirm):
            del course.streaks[key]
            course.active[key] = (problems[key].finding, wall)
            news.append(CheckChange(check.name, problems[key], since=wall))
    for key in sorted(gone):
        if course.streaks[key] >= max(check.confirm, LOOKS_TO_BE_OVER):
            del course.streaks[key]
            finding, since = course.active.pop(key)
            news.append(CheckChange(check.name, Problem(finding, "it is over"), is_over=True, since=since))
    return news
