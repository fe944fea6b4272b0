"""`nodeheal-agent doctor`: reports what works on this node, what is missing, and whether AWS accepts its calls.

All probes run at once, each in a process of its own like a check. A probe that hangs is reported and ended.
"""

import argparse
import json
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from nodeheal import __version__
from nodeheal.agent.checks.check import CheckContext, NodeCheck, NodeCheckResult, State, always
from nodeheal.agent.checks.registry import chosen
from nodeheal.agent.checks.tools import run_tool
from nodeheal.agent.commands import doctor_probes
from nodeheal.agent.commands.check_now import NOT_HERE, CheckRow, rows_of
from nodeheal.agent.runtime.config import AgentConfig, ConfigError, given
from nodeheal.contract.vocabulary import Verdict

GOOD, BAD, ABSENT = "ok", "WRONG", "-"
POOR, UNTRIED = "poor", "?"  # the agent works, but at a cost or with less coverage; UNKNOWN: nobody has tried
# A call looks up the node's identity and may be signed a second time: four answers of ten seconds.
CALL_SECONDS, LOCAL_SECONDS = 45.0, 10.0
# The tools that commands run on a node, and their purpose.
TOOLS = {
    "dcgmi": "diagnostics and health of NVIDIA GPUs",
    "nvidia-smi": "evidence; GPU state where NVML cannot be loaded",
    "neuron-ls": "diagnostics of Trainium and Inferentia",
    "fi_info": "diagnostics of EFA",
    "fi_pingpong": "the network test to another node over EFA, on command",
    "stress-ng": "CPU stress",
    "systemd-run": "reboots; without it a reboot takes the SSM agent a minute longer",
}
SSM_FOLDER = Path("/var/lib/amazon")
_MEND = (
    "a running agent keeps the configuration that it has read; correct the file, then: systemctl restart nodeheal-agent"
)
_OFF = "off: `cloudwatch_metrics` is not set to nodes or gpus"


@dataclass(frozen=True)
class Sign:
    """The result of one probe. Only BAD keeps the agent from its work."""

    what: str
    state: str
    said: str


@dataclass(frozen=True)
class Trial:
    """One probe, and the state to report for success and for failure."""

    check: NodeCheck
    fails: str = BAD
    works: str = GOOD

    def sign(self, row: CheckRow) -> Sign:
        """Create the result of this probe."""
        text = "; ".join(row.said)
        if row.verdict == NOT_HERE:
            return Sign(row.check, ABSENT, text.removeprefix("not checked: "))
        return Sign(row.check, self.works if row.verdict == Verdict.OK else self.fails, text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the option for the output format."""
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def carry_out(arguments: argparse.Namespace) -> int:
    """Run the probes; returns the exit code."""
    try:
        config = given(arguments)
        checks = chosen(config)
    except ConfigError as error:
        say(Sign("configuration", BAD, f"{error}; {_MEND}"), as_json=arguments.json)
        return 1
    return doctor(checks, CheckContext(config, run_tool), as_json=arguments.json)


def doctor(checks: Sequence[NodeCheck], place: CheckContext, *, as_json: bool) -> int:
    """Print the results; returns 0 where the agent can do its work, else 1."""
    version = f"{__version__}, Python {platform.python_version()}, node {place.config.node_id}"
    signs = [
        Sign("agent", GOOD, version),
        *tried([*_host(place.config), *_aws(place), *_supported(checks, place)], place),
    ]
    for sign in [*signs, *_tools()]:
        say(sign, as_json=as_json)
    return 1 if any(sign.state == BAD for sign in signs) else 0


def say(sign: Sign, *, as_json: bool) -> None:
    """Print one result."""
    line = f"{sign.what:<24}{sign.state:<7}{sign.said}"
    sys.stdout.write((json.dumps(asdict(sign)) if as_json else line.rstrip()) + "\n")


def tried(everything: Sequence[Trial], place: CheckContext) -> list[Sign]:
    """Run the probes; returns their results in order."""
    rows = {row.check: row for row in rows_of([trial.check for trial in everything], place)}
    return [trial.sign(rows[trial.check.name]) for trial in everything]


def trial_of(what: str, work: Callable[[], str], seconds: float = LOCAL_SECONDS, why_not: str = "") -> NodeCheck:
    """Wrap a probe in a check: OK where it returns a text, unclear where it raises."""

    def look(_: CheckContext, __: State) -> NodeCheckResult:
        try:
            return NodeCheckResult(summary=work())
        except ConfigError as error:
            return NodeCheckResult(unclear=str(error))
        except OSError as error:
            name = f"{error.filename}: " if error.filename else ""
            return NodeCheckResult(unclear=f"{name}{error.strerror or str(error) or type(error).__name__}")

    return NodeCheck(what, "a trial", seconds, seconds, (lambda _: why_not) if why_not else always, look)


def _host(config: AgentConfig) -> Iterator[Trial]:
    yield Trial(trial_of("boot id", config.boot_id))
    for number, log in enumerate(config.kernel_log, 1):
        name = f"kernel log ({log.kind})" + f" {number}" * (number > 1)
        yield Trial(trial_of(name, partial(doctor_probes.opens, log)))
    yield Trial(trial_of("spool", partial(doctor_probes.writes, Path(config.state_dir))))
    absent = "" if SSM_FOLDER.exists() else f"there is no {SSM_FOLDER}: no SSM agent is installed"
    yield Trial(trial_of("SSM commands", partial(doctor_probes.runs_scripts, SSM_FOLDER), why_not=absent), fails=POOR)


def _aws(place: CheckContext) -> Iterator[Trial]:
    config = place.config
    yield Trial(trial_of("bus", partial(doctor_probes.speaks, config), CALL_SECONDS))
    yield Trial(trial_of("heartbeats", partial(doctor_probes.takes_heartbeat, config), CALL_SECONDS))
    yield Trial(trial_of("way around the bus", partial(doctor_probes.reaches_sns, config), CALL_SECONDS), POOR, UNTRIED)
    off = "" if config.cloudwatch_metrics else _OFF
    yield Trial(trial_of("CloudWatch", partial(doctor_probes.measures, place), CALL_SECONDS, off), fails=POOR)


def _supported(checks: Sequence[NodeCheck], place: CheckContext) -> Iterator[Trial]:
    """Return the probe of a check. It only calls `why_not`, which may read from drivers and hang as well.

    The operator's own checks are run: only their output shows whether a file is valid.
    """
    for check in checks:
        work = partial(check.trial, place) if check.trial else partial(str, check.about)
        same = trial_of(f"check {check.name}", work, check.deadline_seconds if check.trial else LOCAL_SECONDS)
        yield Trial(replace(same, why_not=check.why_not), fails=POOR)


def _tools() -> Iterator[Sign]:
    for tool, purpose in TOOLS.items():
        path = shutil.which(tool)
        yield Sign(f"tool {tool}", GOOD if path else ABSENT, path or f"not installed ({purpose})")
