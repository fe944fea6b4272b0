"""A scheduler has one home: its words stand in its adapter, and not in the domain or the contract."""

import re
from pathlib import Path

import pytest

from stacks.settings import REPOSITORY

# As identifiers, in strings and in comments alike.
_WORDS = re.compile(
    r"(?<![A-Za-z])(?:ecs|ECS)(?![a-z])|Ecs[A-Z]|UserInitiated\b|startedBy|[tT]askDefinition(?=[A-Z\"'])|containerInstance"
    r"|container[- ]instance",
)
# What must remain, a line each, by file; and why.
REMAINS = {
    "domain/fleet/machine.py": (
        ["ecs_managed_instances = ", "Remediator.ecs_managed_instances: "],
        "a value of stored policies, and what people are told of it: AWS's own name for who repairs a machine",
    ),
    "domain/jobs/job.py": (["SchedulerKind.ECS"], "stored jobs do not say which scheduler they have"),
    "domain/fleet/node.py": (["SchedulerKind.ECS"], "stored nodes do not say which scheduler they have"),
    "contract/health_event.py": (
        ["SchedulerKind.ECS", "an ECS cluster name"],
        "reports of version 0.1 do not say which scheduler their node has; the text is part of the published schema",
    ),
    "contract/vocabulary.py": (['ECS = "ECS"'], "the closed list of schedulers"),
    "contract/names.py": (
        ["STATE_CHANGE = ", "HEALTH_CHANGE = ", "# `startedBy` of a task"],
        "types of events by which the stacks route, and the form of a mark that is in their patterns: "
        "stacks may not import adapters",
    ),
    "contract/job_spec.py": (
        ["# ECS accepts 8,192 characters", "characters together, too many for ECS"],
        "a limit of job files, which are refused where they are read",
    ),
}


def _lines(file: Path) -> list[str]:
    return [line.strip() for line in file.read_text("utf-8").splitlines() if _WORDS.search(line)]


def _files() -> dict[str, Path]:
    root = REPOSITORY / "nodeheal"
    found = [path for part in ("domain", "contract") for path in (root / part).rglob("*.py")]
    return {path.relative_to(root).as_posix(): path for path in found}


def test_the_words_of_ecs_stand_in_its_adapter_and_what_remains_is_listed() -> None:
    said = {name: _lines(path) for name, path in _files().items()}
    unlisted = [
        f"{name}: {line}"
        for name, lines in said.items()
        for line in lines
        if not any(part in line for part in REMAINS.get(name, ([], ""))[0])
    ]

    assert unlisted == []


@pytest.mark.parametrize("name", REMAINS)
def test_what_is_listed_is_there(name: str) -> None:
    lines = _lines(_files()[name])

    assert [part for part in REMAINS[name][0] if not any(part in line for line in lines)] == []


@pytest.mark.parametrize("text", ["ECS_TASK", "an ECS task", "ecs", "EcsTask", "UserInitiated", '"containerInstances"'])
def test_the_words_are_seen(text: str) -> None:
    assert _WORDS.search(text)


@pytest.mark.parametrize("text", ["specs", "TaskDefinition(", "UserInitiatedShutdown", "decsription"])
def test_other_words_are_not(text: str) -> None:
    assert not _WORDS.search(text)


def test_services_name_no_adapter_of_a_scheduler() -> None:
    folders = [REPOSITORY / "nodeheal" / name for name in ("services", "operations")]
    for path in (file for folder in folders for file in folder.rglob("*.py")):
        assert "adapters.ecs" not in path.read_text("utf-8"), Path(path).name


def test_what_a_scheduler_does_by_itself_is_read_in_one_module() -> None:
    folders = [REPOSITORY / name for name in ("nodeheal", "lambdas")]
    files = [file for folder in folders for file in folder.rglob("*.py") if "simulation" not in file.parts]
    readers = [file.name for file in files if ".traits." in file.read_text("utf-8")]

    assert readers == ["scheduling.py"]


# The seam's price: what a second scheduler names itself in, outside of its adapter and of the commands.
KNOW_SLURM = {
    "nodeheal/adapters/schedulers.py": "its rows",
    "nodeheal/contract/names.py": "the tag of the controller's machine, which the stacks put into permissions",
    "nodeheal/contract/vocabulary.py": "the closed list of schedulers",
    "nodeheal/domain/fleet/machine.py": "what its clusters understand as an order to replace a machine",
    "nodeheal/domain/policy/policy_models.py": "the option that chooses between them, with its text",
    "stacks/permission.py": "what asking its controller needs",
}
_MOST = 8
# Its adapter and what reads its output; commands of the agent and of operators; what plays it (ADR 63).
_OF_SLURM = ("adapters/slurm/", "parsers/slurm", "parsers/sbatch", "agent/", "cli/", "simulation/")


def test_a_scheduler_is_named_in_few_files_outside_of_its_own() -> None:
    files = [file for part in ("nodeheal", "lambdas", "stacks") for file in (REPOSITORY / part).rglob("*.py")]
    named = {file.relative_to(REPOSITORY).as_posix() for file in files if "slurm" in file.read_text("utf-8").lower()}
    others = {name for name in named if not name.removeprefix("nodeheal/").startswith(_OF_SLURM)}

    assert others == set(KNOW_SLURM)
    assert len(KNOW_SLURM) <= _MOST
