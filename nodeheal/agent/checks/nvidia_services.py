"""Checks the services that NVIDIA GPUs need, and that the driver and its library have the same version.

One call of systemctl covers all services. A service that is not installed or not enabled is not required.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from nodeheal.agent.checks.check import CheckContext, NodeCheck, NodeCheckResult, Problem, State
from nodeheal.agent.checks.hardware import has_nvidia, instance_type, nvidia_driver, nvswitches, text_of
from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding

FABRIC_MANAGER, PERSISTENCE = "nvidia-fabricmanager.service", "nvidia-persistenced.service"
IMEX = "nvidia-imex.service"  # shares GPU memory between the nodes of an NVLink domain
ASK = ["systemctl", "show", "--property=Id,LoadState,ActiveState,UnitFileState", FABRIC_MANAGER, PERSISTENCE, IMEX]
TOOL_SECONDS = 10.0
# Where packages and NVIDIA's installer put the library, on the systems that the agent supports.
LIBRARY_FOLDERS = tuple(
    Path(folder)
    for folder in ("/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib", "/lib64")
)
_LIBRARY = re.compile(r"libnvidia-ml\.so\.(\d{3,4}(?:\.\d{1,4}){1,2})")
_MODULE = re.compile(r"^NVRM version: .{0,120}?\s(\d{3,4}(?:\.\d{1,4}){1,2})\s", re.MULTILINE)
_DOWN = ("inactive", "failed", "deactivating")
_DOMAIN_TYPES = ("p6e-",)  # their NVLink domain spans nodes

Unit = Mapping[str, str]


def why_not(place: CheckContext) -> str:
    """Require NVIDIA GPUs, as the services are theirs."""
    return "" if has_nvidia(place) else "no NVIDIA GPU"


def look(place: CheckContext, _: State) -> NodeCheckResult:
    """Query the services, and compare the versions."""
    module = _module(place)
    problems = [*_mismatch(module, library_versions(LIBRARY_FOLDERS))]
    answer = place.run(ASK, TOOL_SECONDS)
    silent = answer.no_answer("systemctl")
    units = parse_units(answer.text)
    problems += judge_units(units, len(nvswitches(place)), instance_type(place).startswith(_DOMAIN_TYPES))
    unclear = silent.reason if silent else "" if units else "systemctl lists no unit"
    return NodeCheckResult(tuple(problems), unclear=unclear, summary=f"driver {module}" if module else "")


def sees_mismatch(place: CheckContext) -> bool:
    """Whether this check reports a mismatch of driver and library."""
    return any(_mismatch(_module(place), library_versions(LIBRARY_FOLDERS)))


def parse_units(text: str) -> dict[str, Unit]:
    """Parse the output of `systemctl show`: a block of `Name=value` for each unit, by its Id."""
    blocks = [dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in text.split("\n\n")]
    return {block["Id"]: block for block in blocks if "Id" in block}


def judge_units(units: Mapping[str, Unit], switches: int, spans_nodes: bool) -> Iterator[Problem]:
    """Judge the services. The Fabric Manager must run where there are NVSwitches; the persistence daemon where it is
    enabled; IMEX where it is enabled and the NVLink domain spans nodes. Elsewhere IMEX ends by itself, and only its
    failure counts.
    """
    manager, daemon, imex = (units.get(name, {}) for name in (FABRIC_MANAGER, PERSISTENCE, IMEX))
    if switches and manager.get("LoadState") == "loaded" and manager.get("ActiveState") in _DOWN:
        message = f"{FABRIC_MANAGER} is {manager['ActiveState']}, and there are {switches} NVSwitches"
        yield _problem("fabric_manager_down", message)
    if daemon.get("UnitFileState", "").startswith("enabled") and daemon.get("ActiveState") in _DOWN:
        yield _problem("persistence_daemon_down", f"{PERSISTENCE} is enabled and {daemon['ActiveState']}")
    if imex.get("UnitFileState", "").startswith("enabled") and imex.get("ActiveState") in (
        _DOWN if spans_nodes else ("failed",)
    ):
        yield _problem("imex_down", f"{IMEX} is enabled and {imex['ActiveState']}")


def _module(place: CheckContext) -> str:
    return module_version(text_of(nvidia_driver(place) / "version"))


def module_version(text: str) -> str:
    """Return the version of the loaded module; empty where it does not state one."""
    match = _MODULE.search(f"{text}\n")
    return match[1] if match else ""


def library_versions(folders: tuple[Path, ...]) -> frozenset[str]:
    """Return the versions of the installed library; there may be two during a package upgrade."""
    versions = set()
    for folder in folders:
        matches = [_LIBRARY.fullmatch(path.name) for path in folder.glob("libnvidia-ml.so.*")]
        versions |= {match[1] for match in matches if match}
    return frozenset(versions)


def _mismatch(module: str, libraries: frozenset[str]) -> Iterator[Problem]:
    if module and libraries and module not in libraries:
        message = f"the loaded module is {module}, the installed library {', '.join(sorted(libraries))}"
        yield _problem("driver_mismatch", message)


def _problem(code: str, message: str) -> Problem:
    return Problem(Finding(Family.host, code, None, message), message)


CHECK = NodeCheck(
    name="nvidia_services",
    about="Fabric Manager, IMEX, persistence daemon, and the driver's version against its library's",
    interval_seconds=300.0,
    deadline_seconds=20.0,
    why_not=why_not,
    look=look,
    confirm=2,  # a service that is restarting is down for a moment
    settle_seconds=300.0,
)
