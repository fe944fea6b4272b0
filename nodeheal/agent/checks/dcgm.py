"""Checks DCGM's health watches, and whether its host engine runs.

Watches are off until somebody enables them, and are lost when the host engine restarts. A run that finds them off
enables them, which is safe to repeat. What DCGM's policies read is followed by `dcgm_counters`. `dcgmi diag` runs on
command only.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from nodeheal.agent.checks.check import CheckContext, NodeCheck, NodeCheckResult, Problem, State
from nodeheal.agent.checks.dcgm_drills import marked
from nodeheal.agent.checks.dcgm_host import dcgmi
from nodeheal.agent.checks.hardware import has_nvidia
from nodeheal.agent.checks.nvlink_state import COMMAND, SECONDS, printed_state
from nodeheal.agent.checks.tools import is_installed
from nodeheal.agent.diagnostics.bench import Output
from nodeheal.agent.runtime.config import AgentConfig
from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.parsers.dcgm_errors import is_about_nvlinks
from nodeheal.parsers.dcgm_health import parse_health
from nodeheal.parsers.finding import Finding, ToolReport
from nodeheal.parsers.nvlinks import NvLinks

TOOL = "dcgmi"
HEALTH, WATCH_ALL = ("health", "-c", "-j"), ("health", "-s", "a")
# DCGM 2 and older call their service dcgm.
SERVICES = ("nvidia-dcgm.service", "dcgm.service")
TOOL_SECONDS, ASK_SECONDS = 30.0, 10.0
NVLINK_LOOKS = 2  # in a row that must agree
_WATCHES_OFF = re.compile(r"health watches not enabled", re.IGNORECASE)
_NO_ENGINE = re.compile(r"unable to (?:establish a )?connect(?:ion)? to|host ?engine is not running", re.IGNORECASE)


def why_not(place: CheckContext) -> str:
    """Require NVIDIA GPUs and DCGM."""
    if not has_nvidia(place):
        return "no NVIDIA GPU"
    return "" if is_installed(TOOL) else "DCGM is not installed: there is no dcgmi"


def look(place: CheckContext, state: State) -> NodeCheckResult:
    """Query the host engine. It counts as down after two queries without an answer, since a restart looks the same for
    a moment.
    """
    answer = place.run(dcgmi(place.config, *HEALTH), TOOL_SECONDS)
    silent = answer.no_answer(TOOL)
    if silent:
        return NodeCheckResult(unclear=silent.reason)
    text = f"{answer.text}\n{answer.errors}"
    if _NO_ENGINE.search(text):
        if not state.get("down"):
            return NodeCheckResult(unclear="the host engine does not answer", state={"down": True})
        return judge_engine(place.run(["systemctl", "is-enabled", *SERVICES], ASK_SECONDS))
    if _WATCHES_OFF.search(text):
        return _turned_on(place.run(dcgmi(place.config, *WATCH_ALL), ASK_SECONDS))
    return judge_health(answer.text, place)


def judge_health(text: str, place: CheckContext) -> NodeCheckResult:
    """Judge the health watches. A finding that a drill injected gets the drill's mark.

    What they say of NVLinks needs the links' own state and a second look: a node that comes up shows the same.
    """
    report = parse_health(text)
    if not any(is_about_nvlinks(finding.code) for finding in report.findings):
        return _result(report, report.findings, place.config)
    links = printed_state(place.run(COMMAND, SECONDS))
    report = parse_health(text, links)
    if links is not NvLinks.TRAINING:
        return _result(report, report.findings, place.config)
    others = [finding for finding in report.findings if not is_about_nvlinks(finding.code)]
    return _result(replace(report, reason=f"{report.reason}; the NVLinks still train"), others, place.config)


def _result(report: ToolReport, findings: Sequence[Finding], config: AgentConfig) -> NodeCheckResult:
    problems = tuple(
        Problem(marked(finding, config), finding.message, confirm=NVLINK_LOOKS if is_about_nvlinks(finding.code) else 1)
        for finding in findings
    )
    return NodeCheckResult(
        problems, unclear=report.reason if report.verdict is Verdict.UNKNOWN else "", summary=report.reason
    )


def judge_engine(enabled: Output) -> NodeCheckResult:
    """Report a host engine that does not run, where its service is enabled."""
    if "enabled" not in enabled.text.split():
        return NodeCheckResult(
            unclear="the host engine does not run, and its service is not enabled", state={"down": True}
        )
    message = "dcgmi cannot reach the host engine, whose service is enabled"
    return NodeCheckResult(
        (Problem(Finding(Family.host, "host_engine_down", None, message), message),), state={"down": True}
    )


def _turned_on(answer: Output) -> NodeCheckResult:
    is_on = answer.ran.exit_code == 0
    return NodeCheckResult(
        unclear=f"the health watches were off; {'they are on now' if is_on else 'they cannot be turned on'}"
    )


CHECK = NodeCheck(
    name="dcgm",
    about="DCGM's health watches and its host engine",
    interval_seconds=300.0,
    deadline_seconds=60.0,
    why_not=why_not,
    look=look,
    settle_seconds=300.0,
)
