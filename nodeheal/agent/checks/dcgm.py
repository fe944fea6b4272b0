"""Checks DCGM's health watches, and whether its host engine runs.

Watches are off until somebody enables them, and are lost when the host engine restarts. A run that finds them off
enables them, which is safe to repeat. Policy violations are not used: `dcgmi policy --reg` does not name the GPU, and
its policy would replace an operator's own; see docs/adr/0024. `dcgmi diag` runs on command only.
"""

import re
from dataclasses import replace

from nodeheal.agent.checks.check import Check, CheckResult, Place, Problem, State
from nodeheal.agent.checks.hardware import has_nvidia
from nodeheal.agent.checks.tools import is_installed
from nodeheal.agent.config import AgentConfig
from nodeheal.agent.dcgm_drills import is_drilled
from nodeheal.agent.dcgm_host import dcgmi
from nodeheal.agent.diagnostics.bench import Output
from nodeheal.contract.names import DRILL_MARK
from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.parsers.dcgm_health import parse_health
from nodeheal.parsers.finding import Finding

TOOL = "dcgmi"
HEALTH, WATCH_ALL = ("health", "-c", "-j"), ("health", "-s", "a")
# DCGM 2 and older call their service dcgm.
SERVICES = ("nvidia-dcgm.service", "dcgm.service")
TOOL_SECONDS, ASK_SECONDS = 30.0, 10.0
_WATCHES_OFF = re.compile(r"health watches not enabled", re.IGNORECASE)
_NO_ENGINE = re.compile(r"unable to (?:establish a )?connect(?:ion)? to|host ?engine is not running", re.IGNORECASE)


def why_not(place: Place) -> str:
    """Require NVIDIA GPUs and DCGM."""
    if not has_nvidia(place):
        return "no NVIDIA GPU"
    return "" if is_installed(TOOL) else "DCGM is not installed: there is no dcgmi"


def look(place: Place, state: State) -> CheckResult:
    """Query the host engine. It counts as down after two queries without an answer, since a restart looks the same for
    a moment.
    """
    answer = place.run(dcgmi(place.config, *HEALTH), TOOL_SECONDS)
    silent = answer.no_answer(TOOL)
    if silent:
        return CheckResult(unclear=silent.reason)
    said = f"{answer.text}\n{answer.errors}"
    if _NO_ENGINE.search(said):
        if not state.get("down"):
            return CheckResult(unclear="the host engine does not answer", state={"down": True})
        return judge_engine(place.run(["systemctl", "is-enabled", *SERVICES], ASK_SECONDS))
    if _WATCHES_OFF.search(said):
        return _turned_on(place.run(dcgmi(place.config, *WATCH_ALL), ASK_SECONDS))
    return judge_health(answer.text, place.config)


def judge_health(text: str, config: AgentConfig) -> CheckResult:
    """Judge the health watches. A finding that a drill injected gets the drill's mark."""
    report = parse_health(text)
    findings = [_marked(finding, config) for finding in report.findings]
    problems = tuple(Problem(finding, finding.message) for finding in findings)
    return CheckResult(
        problems, unclear=report.reason if report.verdict is Verdict.UNKNOWN else "", summary=report.reason
    )


def _marked(finding: Finding, config: AgentConfig) -> Finding:
    if not is_drilled(config, finding.component, finding.code):
        return finding
    return replace(finding, message=f"{finding.message} {DRILL_MARK}")


def judge_engine(enabled: Output) -> CheckResult:
    """Report a host engine that does not run, where its service is enabled."""
    if "enabled" not in enabled.text.split():
        return CheckResult(unclear="the host engine does not run, and its service is not enabled", state={"down": True})
    message = "dcgmi cannot reach the host engine, whose service is enabled"
    return CheckResult(
        (Problem(Finding(Family.host, "host_engine_down", None, message), message),), state={"down": True}
    )


def _turned_on(answer: Output) -> CheckResult:
    is_on = answer.ran.exit_code == 0
    return CheckResult(
        unclear=f"the health watches were off; {'they are on now' if is_on else 'they cannot be turned on'}"
    )


CHECK = Check(
    name="dcgm",
    about="DCGM's health watches and its host engine",
    interval_seconds=300.0,
    deadline_seconds=60.0,
    why_not=why_not,
    look=look,
    settle_seconds=300.0,
)
