"""Numbers that people have typed into a page are those of the code. A row is a sentence without its numbers."""

import json
import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import pytest

from nodeheal.agent.checks import follower, progress
from nodeheal.agent.checks.registry import CHECKS
from nodeheal.agent.diagnostics import fabric as fabric_test
from nodeheal.agent.diagnostics.all_reduce import ROUNDS
from nodeheal.agent.diagnostics.stress import LOAD_SECONDS
from nodeheal.agent.identity.signing import ROTATE_SECONDS
from nodeheal.agent.node_commands.reboot import DELAY_SECONDS, EXIT_REBOOT, FALLBACK_SECONDS
from nodeheal.agent.runtime.config import AgentConfig, OwnCheck
from nodeheal.agent.runtime.loop import FILE_POLL_SECONDS
from nodeheal.agent.runtime.thresholds import DISK_FULL, MOUNT_ANSWER, MOUNT_FULL, RAM_CORRECTED, ZOMBIES
from nodeheal.agent.transport.fault_counts import MOST_KINDS
from nodeheal.checkpoints.single_files import CHECKED_BYTES
from nodeheal.checkpoints.torch_distributed import EXACT_BYTES
from nodeheal.contract import fabric
from nodeheal.contract.check_seconds import HEALTHY_SECONDS, diagnosis_seconds
from nodeheal.contract.job_spec import Preflight
from nodeheal.contract.job_steps import GANG_AT_MOST
from nodeheal.contract.signature import KEPT_SECONDS
from nodeheal.contract.vocabulary import Action, Check, CheckpointFormat
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.services.intake.node_rates import ANSWERS_A_MINUTE, LATE_A_DAY, REPORTS_A_MINUTE
from nodeheal.services.jobs.ask_after_ranks import ROUND_MINUTES
from nodeheal.services.jobs.find_checkpoint import NODES_ASKED
from nodeheal.services.notify.deliver_notification import EMAILS_A_MINUTE
from sandbox.demo import MOST_NODES
from sandbox.script import GANG_NODES
from sandbox.stories import STORIES
from stacks.agent_release import NODES_AT_ONCE
from stacks.approval_api import REQUESTS_A_SECOND
from stacks.control import INGESTS_AT_ONCE
from stacks.settings import REPOSITORY, Settings
from stacks.state import DELIVERIES, KEPT

MIB, DAY = 1024 * 1024, 86_400
WORDS = {
    2: "two",
    3: "three",
    4: "four",
    5: "five",
    6: "six",
    7: "seven",
    8: "eight",
    9: "nine",
    10: "ten",
    20: "twenty",
}
POLICY = RecoveryPolicy()
ON_NVIDIA = (Check.dcgm, Check.efa, Check.stress)


def minutes(level: int) -> int:
    return diagnosis_seconds(level, ON_NVIDIA) // 60


def limit(action: Action) -> tuple[int, int]:
    return POLICY.limits[action].limit, POLICY.limits[action].window_seconds // DAY


MEASURED = json.loads((REPOSITORY / "docs" / "benchmarks.json").read_text("utf-8"))["agent"]
STORMS = [MEASURED[f"storm_{kind}_cpu_percent"] for kind in ("of_faults", "of_ordinary_lines", "file", "journal")]

SENTENCES: tuple[tuple[str, str, Sequence[Any]], ...] = (
    ("docs/demo.md", "`--nodes N` ({} to {})", (GANG_NODES, MOST_NODES)),
    ("docs/commands.md", "are whole, in {} formats", (WORDS[len(CheckpointFormat) - 1],)),  # auto is none
    ("docs/deploy.md", "the ECS cluster whose nodes are healed (default `{}`)", (Settings().cluster,)),
    ("docs/agent.md", "forgotten after {} limits", (WORDS[int(progress.FORGOTTEN_AFTER_LIMITS)],)),
    ("docs/agent.md", "of the {} newest files", (progress.FILES,)),
    ("docs/agent.md", "or is {:.0f} % full", (DISK_FULL.default,)),
    ("docs/agent.md", "has not answered for {:.0f} s, or is {:.0f} % full", (MOUNT_ANSWER.default, MOUNT_FULL.default)),
    ("docs/agent.md", "corrected ones from {:.0f} in ten minutes", (RAM_CORRECTED.default,)),
    ("docs/agent.md", "{:.0f} zombies", (ZOMBIES.default,)),
    ("docs/agent.md", "After {} minutes without a word", (WORDS[int(follower.SILENT_SECONDS / 60)].lower(),)),
    ("docs/agent.md", "within {} s from a file", (FILE_POLL_SECONDS,)),
    ("docs/agent.md", "start the shutdown {} s later", (DELAY_SECONDS,)),
    ("docs/agent.md", "with exit code {}:", (EXIT_REBOOT,)),
    ("docs/agent.md", "with less than {} s left", (FALLBACK_SECONDS,)),
    ("docs/agent.md", "{} s to {:.0f} minutes by level", (LOAD_SECONDS[1], LOAD_SECONDS[4] / 60)),
    ("docs/agent.md", "fi_pingpong -p efa -e rdm -I {} -d CARD", (fabric_test.MESSAGES,)),
    ("docs/agent.md", "`--seconds` ({})", (fabric.SECONDS,)),
    ("docs/agent.md", "(`--port`, {}, TCP)", (fabric.PORT,)),
    ("docs/agent.md", "on the next port ({}, TCP)", (fabric.PORT + 1,)),
    ("docs/agent.md", "with NCCL, {} times", (WORDS[ROUNDS],)),
    ("docs/agent.md", "{:.0f} MiB resident with all checks on", (MEASURED["rss_mib"],)),
    ("docs/agent.md", "{:.0f} MiB with eight NVIDIA GPUs", (MEASURED["rss_with_8_gpus_mib"],)),
    ("docs/agent.md", "{:.1f} to {:.1f} % while the kernel says 10,000 lines", (min(STORMS), max(STORMS))),
    ("docs/cost.md", "an archive has at most {} MiB", (POLICY.evidence.max_mb,)),
    ("docs/agent.md", "on {} of them at a time", (NODES_AT_ONCE,)),
    ("docs/checkpoints.md", "(up to {} MiB)", (CHECKED_BYTES // MIB,)),
    ("docs/checkpoints.md", "`.metadata` above {} MiB", (EXACT_BYTES // MIB,)),
    ("docs/checkpoints.md", "the next one is asked, {} at most", (WORDS[NODES_ASKED],)),
    ("docs/fleet.md", "pools of at most {} nodes", (GANG_AT_MOST,)),
    (
        "docs/foreign-signals.md",
        "no heartbeat for {} minutes",
        (POLICY.silence.heartbeat_seconds * POLICY.silence.missed_heartbeats // 60,),
    ),
    ("docs/job-restarts.md", "once in {} minutes", (WORDS[ROUND_MINUTES],)),
    ("docs/jobs.md", "`preflight.level` is {} unless the file says otherwise", (Preflight().level,)),
    ("docs/jobs.md", "{} minutes at level 2, {} at level 3, {} at level 4", (minutes(2), minutes(3), minutes(4))),
    ("docs/jobs.md", "(level 4 takes {} minutes)", (HEALTHY_SECONDS[4] // 60,)),
    ("docs/metrics.md", "component and job for up to {} different ones", (MOST_KINDS,)),
    ("docs/operations.md", "Messages that could not be delivered are kept for {:.0f} days", (KEPT.to_days(),)),
    ("docs/adr/0086-events-wait-for-an-outage-to-end.md", "A queue delivers {:,} times", (DELIVERIES,)),
    (
        "docs/security.md",
        "reports that are taken: {} a minute, and {:,} late ones a day",
        (REPORTS_A_MINUTE, LATE_A_DAY),
    ),
    ("docs/security.md", "only counted: {} functions at once", (INGESTS_AT_ONCE,)),
    ("docs/security.md", "which takes {} a minute of one node", (ANSWERS_A_MINUTE,)),
    ("docs/security.md", "send operators and owners {} emails a minute", (EMAILS_A_MINUTE,)),
    ("docs/security.md", "takes {} requests a second", (WORDS[REQUESTS_A_SECOND],)),
    (
        "docs/security.md",
        "for {} days (key: {} until it is replaced and {} in which",
        ((ROTATE_SECONDS + KEPT_SECONDS) // DAY, ROTATE_SECONDS // DAY, KEPT_SECONDS // DAY),
    ),
)


def text_of(page: str) -> str:
    return " ".join((REPOSITORY / page).read_text("utf-8").split())


def rows_of(page: str, head: str) -> list[list[str]]:
    """The cells of the table that begins so."""
    table = (REPOSITORY / page).read_text("utf-8").split(head)[1].split("\n\n")[0]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines()[2:]]


def codes_in(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize(
    ("page", "sentence", "numbers"), SENTENCES, ids=[f"{page}: {said}" for page, said, _ in SENTENCES]
)
def test_a_number_in_a_page_is_that_of_the_code(page: str, sentence: str, numbers: Sequence[Any]) -> None:
    assert sentence.format(*numbers) in text_of(page)


def test_one_attempt_a_day_is_the_default() -> None:
    assert limit(Action.REBOOT) == limit(Action.REPLACE) == (1, 1)
    assert "one reboot and one replacement a day by default" in text_of("docs/safety.md")


def test_the_table_of_the_agents_settings_has_each_of_them_with_its_default() -> None:
    told = {codes_in(key)[0]: default for key, default, _ in rows_of("docs/agent.md", "| key | default | meaning |")}
    defaults = {one.name: one.default for one in fields(AgentConfig)}

    assert set(told) == set(defaults)
    for name, default in defaults.items():
        if isinstance(default, bool):
            assert told[name] == str(default).lower(), name
        elif isinstance(default, int | float):
            assert re.match(rf"{default:g}\b", told[name]), name
        elif isinstance(default, str) and default:
            assert told[name] == f"`{default}`", name


def test_every_check_is_on_a_page_with_how_often_it_looks() -> None:
    own = {
        name: every
        for names, every, _ in rows_of("docs/agent.md", "| check | every | finds |")
        for name in codes_in(names)
        if len(codes_in(names)) == 1
    }
    of_accelerators = {
        codes_in(name)[0]: every.partition(",")[0]
        for name, _, every, _ in rows_of("docs/accelerator-checks.md", "| check | looks at | every | needs |")
    }
    seconds = {
        name: int(every.split()[0]) * {"s": 1, "min": 60}[every.split()[1]]
        for name, every in {**own, **of_accelerators}.items()
    }

    known = {check.name: check.interval_seconds for check in CHECKS if check.name != "host_load"}
    assert seconds == {**known, "own/NAME": OwnCheck().interval_seconds}
    assert "`host_load`" in text_of("docs/metrics.md")


def test_the_pages_list_every_story_and_every_setting() -> None:
    stories = [name for told, _ in rows_of("docs/demo.md", "| story | what happens |") for name in codes_in(told)]
    settings = (REPOSITORY / "docs" / "deploy.md").read_text("utf-8").split("| key | meaning |")[1].split("\n\n")[0]

    assert sorted(stories) == sorted(STORIES)
    assert [name for name in Settings.model_fields if name != "stage" and f"`{name}`" not in settings] == []
