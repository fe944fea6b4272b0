"""Runs an operator's own checks: each executable file in one folder of the node is a check, and prints one JSON object.

The files are found when the agent starts. A file's permissions and its output are checked at each run, since both come
from other people. A file that breaks the rules gives no verdict on the node, so nothing is reported.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nodeheal.agent.checks.check import CheckBroken, CheckContext, NodeCheck, NodeCheckResult, Problem, State
from nodeheal.agent.runtime.config import AgentConfig, OwnCheck
from nodeheal.agent.transport.event import CHECK_CHARACTERS, clip
from nodeheal.contract.json_text import read_json
from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.contract.words import OWN_CODE, OWN_NAME, word
from nodeheal.parsers.finding import Finding

FOLDER = "own"  # the check of the folder; selecting it selects all checks in it
PREFIX = f"{FOLDER}/"  # no check of the agent has this family, so an operator's event cannot pass for another one
# Two processes each, and what they start; the unit allows the agent 64 in all.
MOST = 16
MARGIN_SECONDS = 5.0  # to start a file, and to end it
# With the 10 s before the first run and the deadline, this is less than the 120 s (`stable_seconds`) after which a
# rebooted node returns to service: a fault that the reboot did not remove is reported before.
SETTLE_SECONDS = 60.0
_KEYS = ("verdict", "code", "component", "reason")
_COMPONENT_CHARACTERS = 128
_WRONG = (Verdict.DEGRADED, Verdict.FAILED)


@dataclass(frozen=True)
class Said:
    """The verdict of an operator's own check. UNKNOWN: the check could not judge the node."""

    verdict: Verdict
    code: str = ""
    component: str | None = None
    reason: str = ""

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.verdict, self.code, self.reason)))


def all_of(config: AgentConfig) -> list[NodeCheck]:
    """Return a check for each suitable file, and for each name with settings in the configuration."""
    return [check_of(name, config) for name in _names(config)[:MOST]]


def check_of(name: str, config: AgentConfig) -> NodeCheck:
    """Return the check of this name, whether or not its file exists."""
    terms = config.own_checks.get(name, OwnCheck())
    return NodeCheck(
        name=f"{PREFIX}{name}",
        about=f"a check of your own: {config.checks_dir}/{name}",
        interval_seconds=terms.interval_seconds,
        deadline_seconds=terms.deadline_seconds + MARGIN_SECONDS,
        why_not=partial(_why_not, name),
        look=partial(_look, name),
        settle_seconds=SETTLE_SECONDS,
        trial=partial(_trial, name),
    )


def is_name(text: str) -> bool:
    """Whether an operator's own check can have this name, `own/` included."""
    return text.startswith(PREFIX) and re.fullmatch(OWN_NAME, text.removeprefix(PREFIX)) is not None


def ask(name: str, config: AgentConfig) -> Said:
    """Run the file and parse its output. Raises CheckBroken."""
    from nodeheal.agent.checks.own_process import run_own  # in the check's process: the agent itself runs no file

    seconds = config.own_checks.get(name, OwnCheck()).deadline_seconds
    return parse_own(run_own(Path(config.checks_dir) / name, Path(config.state_dir), seconds))


def parse_own(printed: bytes) -> Said:
    """Parse the output of an operator's own check. Raises CheckBroken, with the reason."""
    fields = _object(printed)
    for key, value in fields.items():
        if key not in _KEYS:
            raise CheckBroken(f"it prints the unknown key {key!r:.40}; known are {', '.join(_KEYS)}")
        if not isinstance(value, str):
            raise CheckBroken(f"{key!r} must be text")
    verdict = fields.get("verdict")
    if verdict not in tuple(Verdict):
        raise CheckBroken(f"'verdict' must be one of {', '.join(Verdict)}, not {verdict!r:.40}")
    is_wrong = verdict in _WRONG
    required = {"code": is_wrong, "reason": verdict != Verdict.OK}
    for key in (key for key, must in required.items() if must and not fields.get(key)):
        raise CheckBroken(f"{verdict} needs {key!r}")
    for key in (key for key in ("code", "component") if key in fields and not is_wrong):
        raise CheckBroken(f"{verdict} has no {key!r}")
    code, component = fields.get("code", ""), fields.get("component")
    if is_wrong and not re.fullmatch(OWN_CODE, code):
        raise CheckBroken(f"'code' must be of the form {OWN_CODE.strip('^$')}, not {code!r:.80}")
    if component is not None and not 0 < len(component) <= _COMPONENT_CHARACTERS:
        raise CheckBroken(f"'component' must have 1 to {_COMPONENT_CHARACTERS} characters")
    return Said(Verdict(verdict), code, component and word(component), _clean(fields.get("reason", "")))


def look_of(name: str, answer: Said) -> NodeCheckResult:
    """Convert it into a result. The family is always `own`: no file can report a fault of the catalog."""
    if answer.verdict is Verdict.UNKNOWN:
        return NodeCheckResult(unclear=answer.reason)
    if answer.verdict is Verdict.OK:
        return NodeCheckResult(summary=answer.reason)
    finding = Finding(Family.own, name, answer.component, answer.reason, answer.code, verdict=answer.verdict)
    return NodeCheckResult((Problem(finding, answer.reason),))


def _object(printed: bytes) -> dict[str, str]:
    """Parse the one JSON object. Its values need not be texts yet."""
    if not printed.strip():
        raise CheckBroken("it prints nothing")
    try:
        answer = read_json(printed.decode("utf-8"), object_pairs_hook=_each_once)
    except CheckBroken:
        raise
    except ValueError as error:
        raise CheckBroken(f"it does not print one JSON object: {str(error).partition(':')[0]:.80}") from None
    if not isinstance(answer, dict):
        raise CheckBroken("it does not print one JSON object")
    return answer


def _each_once(pairs: list[tuple[str, str]]) -> Mapping[str, str]:
    known = dict(pairs)
    if len(known) < len(pairs):
        raise CheckBroken("it prints a key twice")
    return known


def _clean(text: str) -> str:
    """Clean a text for logs and emails: one line of printable characters, bounded."""
    return clip("".join(character if character.isprintable() else " " for character in text).strip(), CHECK_CHARACTERS)


def _why_not(name: str, place: CheckContext) -> str:
    file = Path(place.config.checks_dir) / name
    try:
        file.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return f"there is no {file}"
    except OSError:
        return ""  # the run reports the reason
    return ""


def _look(name: str, place: CheckContext, _: State) -> NodeCheckResult:
    try:
        return look_of(name, ask(name, place.config))
    except CheckBroken as error:
        return NodeCheckResult(unclear=str(error))


def _trial(name: str, place: CheckContext) -> str:
    return f"it says {ask(name, place.config)}"


def _names(config: AgentConfig) -> list[str]:
    """Return the names of suitable files and of those with settings, in order."""
    file_names = set(config.own_checks)
    with contextlib.suppress(OSError):  # the check of the folder reports the reason
        file_names |= {file.name for file in Path(config.checks_dir).iterdir() if is_name(PREFIX + file.name)}
    return sorted(file_names)


def _refused(config: AgentConfig) -> Iterator[str]:
    """Return each file in the folder that is not a valid check, with the reason. Raises OSError."""
    for name in sorted(file.name for file in Path(config.checks_dir).iterdir()):
        if not is_name(PREFIX + name):
            yield f"{name!r:.80} is not a check name: it must be of the form {OWN_NAME.strip('^$')}"
    for name in _names(config)[MOST:]:
        yield f"{name} is not run: at most {MOST} checks are"


def _why_no_folder(place: CheckContext) -> str:
    folder = Path(place.config.checks_dir)
    try:
        return "" if any(folder.iterdir()) else f"{folder} is empty"
    except FileNotFoundError:
        return f"there is no {folder}"
    except OSError:
        return ""  # the run reports the reason


def _look_at_folder(place: CheckContext, _: State) -> NodeCheckResult:
    try:
        refused = "; ".join(_refused(place.config))
    except OSError as error:
        return NodeCheckResult(unclear=f"{place.config.checks_dir} cannot be read: {error.strerror}")
    return NodeCheckResult(unclear=clip(refused, CHECK_CHARACTERS), summary=f"{len(_names(place.config))} checks")


def _try_folder(place: CheckContext) -> str:
    look = _look_at_folder(place, {})
    if look.unclear:
        raise CheckBroken(look.unclear)
    return look.summary


CHECK = NodeCheck(
    name=FOLDER,
    about="files in the folder of your own checks that are not valid checks",
    interval_seconds=600.0,
    deadline_seconds=10.0,
    why_not=_why_no_folder,
    look=_look_at_folder,
    trial=_try_folder,
)
