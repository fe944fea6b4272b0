"""Reads the state of GPUs from nvidia-smi, on nodes where the agent cannot use NVML.

Beside NVML, where it is enabled, it reports only what an open library may miss: a driver that can no longer be opened,
and readings that fail.
"""

from dataclasses import replace

from nodeheal.agent.checks import gpu_state
from nodeheal.agent.checks.check import CheckContext, NodeCheck, NodeCheckResult, Problem, State
from nodeheal.agent.checks.dedupe import without_duplicates
from nodeheal.agent.checks.hardware import has_nvidia
from nodeheal.agent.checks.tools import is_installed
from nodeheal.agent.runtime.thresholds import NVIDIA_SMI
from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.parsers.finding import Finding

TOOL = "nvidia-smi"
LIBRARY = "libnvidia-ml.so.1"  # of the driver; the name that NVML is queried by
ASK = [TOOL, "-q", "-x"]
_ERR_FIELD = "ERR_FIELD"
HANG = Finding(Family.host, "nvidia_smi_hang", None, f"{' '.join(ASK)} does not answer")


def why_not(place: CheckContext) -> str:
    """Require GPUs that NVML cannot read here: otherwise this check repeats gpu_state at a higher cost."""
    if not has_nvidia(place):
        return "no NVIDIA GPU"
    if _has_library() and not place.config.nvidia_smi_beside_nvml:
        return "gpu_state reads the same from the library; `nvidia_smi_beside_nvml` is not set"
    return "" if is_installed(TOOL) else "nvidia-smi is not installed"


def look(place: CheckContext, _: State) -> NodeCheckResult:
    """Run nvidia-smi and judge its output."""
    result = _asked(place)
    names = place.config.checks
    is_beside = (names is None or gpu_state.CHECK.name in names) and _has_library()
    return without_duplicates(_left_over(result) if is_beside else result, place)


def _has_library() -> bool:
    import ctypes  # a module that a node without GPUs never needs

    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return False
    return True


def _left_over(look: NodeCheckResult) -> NodeCheckResult:
    """Drop the problems that gpu_state reports, too."""
    mine = tuple(problem for problem in look.problems if problem.finding == HANG or problem.finding.code == _ERR_FIELD)
    others = sorted({problem.finding.code for problem in look.problems if problem not in mine})
    pointer = f"{', '.join(others)}: see {gpu_state.CHECK.name}" if others else ""
    return replace(look, problems=mine, unclear="; ".join(filter(None, (look.unclear, pointer))))


def _asked(place: CheckContext) -> NodeCheckResult:
    answer = place.run(ASK, place.config.limit(NVIDIA_SMI))
    if answer.ran.has_hung:
        return NodeCheckResult((Problem(HANG, answer.ran.error),), unclear=answer.ran.error)
    silent = answer.no_answer(TOOL)
    return NodeCheckResult(unclear=silent.reason) if silent else judge(f"{answer.errors}{answer.text}")


def judge(text: str) -> NodeCheckResult:
    """Judge the output. The check gpu_count knows how many GPUs there should be."""
    from nodeheal.parsers.nvidia_smi import parse_nvidia_smi  # imported here because it loads an XML parser

    report = parse_nvidia_smi(text)
    problems = tuple(Problem(finding, finding.message) for finding in report.findings)
    return NodeCheckResult(
        problems, unclear=report.reason if report.verdict is Verdict.UNKNOWN else "", summary=report.reason
    )


CHECK = NodeCheck(
    name="nvidia_smi",
    about="GPU state by nvidia-smi, where NVML cannot be read; else, if wanted, whether it hangs or shows ERR!",
    interval_seconds=300.0,
    deadline_seconds=NVIDIA_SMI.most + 30.0,
    why_not=why_not,
    look=look,
    hang=HANG,
    settle_seconds=180.0,
)
