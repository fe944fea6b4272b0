"""A scheduler has one home: its name stands in its folder, in the vocabulary and in one table, and nowhere else."""

import re
from pathlib import Path

import pytest

from nodeheal.contract.vocabulary import SchedulerKind
from stacks.settings import REPOSITORY

CORE = ("api", "contract", "domain", "operations", "ports", "services", "adapters")
# Where a name belongs: the folder of its scheduler, the closed list, and the tables.
HOMES = (
    *(f"adapters/{kind.lower()}/" for kind in SchedulerKind),
    "adapters/rank_changes.py",
    "adapters/scheduler_signals.py",
    "adapters/schedulers.py",
    "contract/vocabulary.py",
)
# The names, by themselves or within an identifier, and words that are only of ECS.
_NAMES = "|".join(SchedulerKind)
_WORDS = re.compile(
    rf"(?<![A-Za-z])(?i:{_NAMES})(?![a-z])|(?:{'|'.join(kind.title() for kind in SchedulerKind)})[A-Z]"
    r"|UserInitiated\b|startedBy|[tT]askDefinition(?=[A-Z\"'])|containerInstance|container[- ]instance",
)
# What must remain, a line each, by file; and why.
REMAINS = {
    "api/job_file.py": (['"taskDefinition": '], "how people who know it from ECS call a field of job.yaml"),
    "adapters/aws/account.py": (["docs/ecs-anywhere.md, "], "the page that says how DCGM comes onto a node, on any"),
    "adapters/aws/ec2_remediators.py": (
        ["_OPERATORS = "],
        "AWS's own name for who repairs a machine, whichever scheduler its node has",
    ),
    "domain/fleet/machine.py": (
        ["ecs_managed_instances = ", "Remediator.ecs_managed_instances: "],
        "the same, a value of policies, and what people are told of it",
    ),
    "contract/names.py": (
        [
            "STATE_CHANGE = ",
            "HEALTH_CHANGE = ",
            "# `startedBy` of a task",
            "of a Slurm controller",
            "SLURM_CONTROLLER_TAG",
            "KUBERNETES_AGENT",
            "KUBERNETES_GROUP",
            "KUBERNETES_NAMESPACE",
            "KUBERNETES_TAINT",
            "KUBERNETES_POOL_LABEL",
        ],
        "types of events, marks and names by which the stacks route and permit, and which the agent reads: neither may "
        "import adapters",
    ),
}


def _lines(file: Path) -> list[str]:
    return [line.strip() for line in file.read_text("utf-8").splitlines() if _WORDS.search(line)]


def _files() -> dict[str, Path]:
    root = REPOSITORY / "nodeheal"
    found = {path.relative_to(root).as_posix(): path for part in CORE for path in (root / part).rglob("*.py")}
    return {name: path for name, path in found.items() if not name.startswith(HOMES)}


def test_the_name_of_a_scheduler_stands_at_home_and_what_remains_is_listed() -> None:
    unlisted = [
        f"{name}: {line}"
        for name, path in _files().items()
        for line in _lines(path)
        if not any(part in line for part in REMAINS.get(name, ([], ""))[0])
    ]

    assert unlisted == []


@pytest.mark.parametrize("name", REMAINS)
def test_what_is_listed_is_there(name: str) -> None:
    lines = _lines(_files()[name])

    assert [part for part in REMAINS[name][0] if not any(part in line for line in lines)] == []


@pytest.mark.parametrize(
    "text",
    [
        "ECS_TASK",
        "an ECS task",
        "ecs",
        "EcsTask",
        "_slurm_controller",
        "of Slurm",
        "UserInitiated",
        '"containerInstances"',
    ],
)
def test_the_words_are_seen(text: str) -> None:
    assert _WORDS.search(text)


@pytest.mark.parametrize("text", ["specs", "TaskDefinition(", "UserInitiatedShutdown", "decsription"])
def test_other_words_are_not(text: str) -> None:
    assert not _WORDS.search(text)


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
    "stacks/permission.py": "what asking its controller needs",
}
_MOST = 4
# Its adapter and what reads its output; commands of the agent and of operators; what plays it (ADR 63); the module that
# training programs import, whichever launcher has started them.
_OF_SLURM = ("progress.py", "adapters/slurm/", "parsers/slurm", "parsers/sbatch", "agent/", "cli/", "simulation/")


def test_a_scheduler_is_named_in_few_files_outside_of_its_own() -> None:
    files = [file for part in ("nodeheal", "lambdas", "stacks") for file in (REPOSITORY / part).rglob("*.py")]
    named = {file.relative_to(REPOSITORY).as_posix() for file in files if "slurm" in file.read_text("utf-8").lower()}
    others = {name for name in named if not name.removeprefix("nodeheal/").startswith(_OF_SLURM)}

    assert others == set(KNOW_SLURM)
    assert len(KNOW_SLURM) <= _MOST
