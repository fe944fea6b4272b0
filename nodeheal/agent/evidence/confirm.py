"""Answers whether this node shows the fault that was reported of it: in the kernel log of its boot, or by the check."""

import base64
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from nodeheal.agent.checks import kernel_log
from nodeheal.agent.checks.check import CheckContext, NodeCheck
from nodeheal.agent.checks.check_ipc import ProcessAnswer
from nodeheal.agent.checks.journal import TOOL as JOURNALCTL
from nodeheal.agent.checks.journal import journal_of_boot
from nodeheal.agent.checks.kmsg import KmsgReader
from nodeheal.agent.checks.registry import named
from nodeheal.agent.checks.tools import run_tool
from nodeheal.agent.commands.check_now import answers_of
from nodeheal.agent.runtime import probe
from nodeheal.agent.runtime.config import AgentConfig, KernelLog
from nodeheal.agent.runtime.safe_files import open_file
from nodeheal.agent.transport.event import Confirmed
from nodeheal.contract.json_text import read_json
from nodeheal.contract.names import DRILL_MARK
from nodeheal.contract.vocabulary import Confirmation, Family
from nodeheal.contract.words import word
from nodeheal.parsers.finding import Finding
from nodeheal.parsers.journal_entry import parse_journal_entry
from nodeheal.parsers.kernel_filter import all_lines, blocks_of, suspicious_lines
from nodeheal.parsers.kernel_line import (
    Messages,
    Parse,
    finding_in_record,
    is_boot_banner,
    parse_kmsg_record,
    parse_syslog_line,
)
from nodeheal.parsers.kernel_pcie import UNPLACED, placed

MIB = 1024 * 1024
LOG_BYTES = 64 * MIB  # of one log: years of a normal node, a quarter of an hour of a storm
JOURNAL_SECONDS = 15.0
LINE_CHARACTERS = 200  # of the quoted line
NOT_ASKED = "the command names no fault to confirm"
_BANNER = b"Linux version "


@dataclass(frozen=True)
class Accusation:
    """The fault that was reported of this node, and the check that reported it."""

    family: str
    code: str
    boot_id: str
    source: str
    subcode: str | None = None
    component: str | None = None

    def is_of(self, finding: Finding, *, any_component: bool = False) -> bool:
        """Whether the finding is this fault. `any_component`: two sources can spell one component differently."""
        key = (finding.family.value, *map(_word, (finding.code, finding.subcode, finding.component)))
        asked = (self.family, self.code, self.subcode, self.component)
        return key[:3] == asked[:3] and (any_component or key == asked)


@dataclass(frozen=True)
class _Said:
    """The answer of one source: the text that shows the fault, or why the source cannot answer. Both empty: the source
    does not show it.
    """

    where: str
    words: str = ""
    unclear: str = ""


def read_accusation(text: str) -> Accusation | None:
    """Decode the fault from a command's Base64; None where the command names none. Raises ValueError."""
    if not text:
        return None
    try:
        fields = read_json(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except ValueError as error:
        raise ValueError(f"the fault that the command names cannot be read: {error}") from error
    if not isinstance(fields, dict):
        raise ValueError("the fault that the command names is not an object")
    known = {name: fields.get(name) for name in Accusation.__dataclass_fields__}
    optional = ("subcode", "component")
    if any(not isinstance(value, str) and not (value is None and name in optional) for name, value in known.items()):
        raise ValueError("the fault that the command names lacks a field")
    return Accusation(**known)  # type: ignore[arg-type]  # each is a word, as was just checked


def confirm(accusation: Accusation, config: AgentConfig, seconds: float) -> Confirmed:
    """Answer within the seconds. A drill's line counts where this node accepts drills."""
    here = config.boot_id()
    if accusation.boot_id != here:
        why = f"it was reported on boot {accusation.boot_id[:8]}, and this is boot {here[:8]}"
        return Confirmed(Confirmation.UNKNOWN, why)
    answers = []
    for look in _looks(accusation, config, seconds):
        answers.append(look())
        if answers[-1].words:
            return Confirmed(Confirmation.CONFIRMED, f"{answers[-1].where}: {answers[-1].words}")
    unclear = [f"{answer.where}: {answer.unclear}" for answer in answers if answer.unclear]
    if unclear:
        return Confirmed(Confirmation.UNKNOWN, "; ".join(unclear))
    verb = "does" if len(answers) == 1 else "do"
    return Confirmed(Confirmation.DENIED, f"{' and '.join(answer.where for answer in answers)} {verb} not show it")


def _looks(accusation: Accusation, config: AgentConfig, seconds: float) -> Iterator[Callable[[], _Said]]:
    """Return one search for each place that may show the fault."""
    is_own = accusation.family == Family.own  # the kernel log has no message for it
    for log in () if is_own else config.kernel_log:
        yield lambda log=log: _in_log(log, accusation, config, min(seconds, JOURNAL_SECONDS))  # type: ignore[misc]
    if is_own or accusation.source != kernel_log.SOURCE:
        yield lambda: _in_check(accusation, config, seconds)


def _in_log(log: KernelLog, accusation: Accusation, config: AgentConfig, seconds: float) -> _Said:
    where = f"the kernel log ({log.path or log.kind})"
    # A check may name a component otherwise than the kernel: a GPU's UUID, and its PCI address.
    any_component = accusation.source != kernel_log.SOURCE
    read = {"file": _file_findings, "journald": _journal_findings}.get(log.kind, _kmsg_findings)
    try:
        findings, unclear = read(log, config, seconds)
    except OSError as error:
        return _Said(where, unclear=error.strerror or str(error))
    same = [
        finding
        for finding in findings
        if any(accusation.is_of(way, any_component=any_component) for way in _ways_to_place(finding))
    ]
    return _Said(where, words=same[-1].message[:LINE_CHARACTERS]) if same else _Said(where, unclear=unclear)


def _ways_to_place(finding: Finding) -> tuple[Finding, ...]:
    """Return the placements to try: a PCIe fault of a port is reported by the device below it, which may have
    disappeared.
    """
    if finding.code != UNPLACED:
        return (finding,)
    return (finding, placed(finding, serves_jobs=True), placed(finding, serves_jobs=False))


def _word(text: str | None) -> str | None:
    """Return the value as an event has it."""
    return word(text) if text else None


_Read = tuple[list[Finding], str]  # the faults of the running boot, and why the list may be incomplete


def _kmsg_findings(log: KernelLog, config: AgentConfig, seconds: float) -> _Read:
    boot_id, findings, first = config.boot_id(), list[Finding](), -1
    until = time.monotonic() + seconds
    reader, parse = KmsgReader(log.path, boot_id, {"boot_id": boot_id}), Messages().finding
    try:
        while (records := reader.read()) and time.monotonic() < until:  # in a storm the kernel adds lines without end
            first = records[0][0] if first < 0 else first
            parsed = (parse_kmsg_record(raw) for _, raw in records)
            findings += filter(
                None, (finding_in_record(record, config.drills, parse) for record in parsed if record is not None)
            )
    finally:
        reader.close()
    return findings, "the kernel has overwritten the first messages of this boot" if first > 0 else ""


def _file_findings(log: KernelLog, config: AgentConfig, _: float) -> _Read:
    """Search the file and the rotated one beside it, from the first line of the last boot on."""
    path = Path(log.path)
    before = path.with_name(f"{path.name}.1")
    older, cut_older = _tail(before) if os.path.lexists(before) else (b"", False)
    newer, cut_newer = _tail(path)
    text = newer if cut_newer else older + newer
    begins = _begin_of_boot(text)
    lines = (line for _, line in suspicious_lines(blocks_of(iter([text[max(begins, 0) :]]))))
    parse = Messages().finding
    findings = filter(None, (_finding_in_line(line, config.drills, parse) for line in lines))
    is_whole = begins >= 0 or not (older or cut_older or cut_newer)
    return list(findings), "" if is_whole else "it does not go back to the start of this boot"


def _journal_findings(log: KernelLog, config: AgentConfig, seconds: float) -> _Read:
    with tempfile.TemporaryDirectory(prefix="nodeheal-", ignore_cleanup_errors=True) as folder:
        output = Path(folder) / "journal"
        ran = probe.run(journal_of_boot(log.path), output, seconds, LOG_BYTES)
        text = output.read_bytes() if output.exists() else b""
    if ran.error or ran.exit_code:
        return [], f"{JOURNALCTL}: {ran.error or f'exit code {ran.exit_code}'}"
    lines = (all_lines if config.drills else suspicious_lines)(blocks_of(iter([text])))
    entries = (parse_journal_entry(line) for _, line in lines)
    records = (entry.record for entry in entries if entry is not None and entry.record is not None)
    parse = Messages().finding
    findings = filter(None, (finding_in_record(record, config.drills, parse) for record in records))
    return list(findings), "it is too long to be read in full" if ran.is_truncated else ""


def _finding_in_line(line: bytes, takes_drills: bool, parse: Parse) -> Finding | None:
    return None if DRILL_MARK.encode() in line and not takes_drills else parse_syslog_line(line, parse)


def _tail(path: Path) -> tuple[bytes, bool]:
    """Return the end of the file, and whether there is more before it. Another user may own its folder."""
    with open_file(path) as file:
        start = max(0, os.fstat(file.fileno()).st_size - LOG_BYTES)
        file.seek(start)
        return file.read(LOG_BYTES), start > 0


def _begin_of_boot(text: bytes) -> int:
    """Return where the newest boot begins; -1: no boot begins here."""
    at = text.rfind(_BANNER)
    while at >= 0:
        start = text.rfind(b"\n", 0, at) + 1
        if is_boot_banner(text[start : text.find(b"\n", at) if b"\n" in text[at:] else None]):
            return start
        at = text.rfind(_BANNER, 0, at)
    return -1


def _in_check(accusation: Accusation, config: AgentConfig, seconds: float) -> _Said:
    """Run the check that reported the fault once more."""
    where = f"the check {accusation.source}"
    check = named(accusation.source, config)
    if check is None:
        return _Said(where, unclear="this node has no such check")
    timely = replace(check, deadline_seconds=min(check.deadline_seconds, seconds))
    for answer, _, _ in answers_of([timely], CheckContext(config, run_tool)):
        return _as_seen(where, answer, check, accusation)
    return _Said(where, unclear="no answer")


def _as_seen(where: str, answer: ProcessAnswer, check: NodeCheck, accusation: Accusation) -> _Said:
    if answer.hung and check.hang is not None and accusation.is_of(check.hang):
        return _Said(where, words=check.hang.message)
    look = answer.look
    if look is None:
        return _Said(where, unclear=answer.absent or answer.broke or "no answer in time")
    for problem in (*look.problems, *look.happened):
        if accusation.is_of(problem.finding):
            return _Said(where, words=(problem.evidence or problem.finding.message)[:LINE_CHARACTERS])
    # A check with a stream also reports events, and a past event is not seen again.
    missed = "it reports some faults only at the moment they happen" if check.stream is not None else ""
    return _Said(where, unclear=look.why_unclear or missed)
