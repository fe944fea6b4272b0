"""Words that the project no longer uses, and the terms of the field that replaced them.

A banned word fails here in code, tests and docs, which include emails and the CLI's help. Where something outside
still depends on an old word, `ALLOWED` has a row with the reason. A riddle fails in the code but for the command line.
"""

import ast
import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest

from stacks.settings import REPOSITORY

# Old words, as a pattern of whole words: the terms that replaced them.
BANNED = {
    # Intake
    r"hear_beats|lay_over|note_boots|ask_for_interval": "merge_heartbeats, record_missed_boots, request_interval",
    r"hear_silence|tell_of_many|told_of_many": "probe_silent_nodes, page_mass_silence",
    r"hear_node|first_heard|speaks_as": "upsert_node, with_first_report, with_agent_version",
    r"[Ss]igns?[ _-]of[ _-]life|NotBeaten|BEAT_\w+": "heartbeat, HeartbeatRejected",
    r"[Ss]ightings?": "observation",
    r"(?:[Ww]eak)[ _](?:signal|draft)s?|is_weak": "advisory signal",
    r"Impostor": "UnauthorizedSource",
    # Decisions
    r"look_around|Surroundings": "read_situation, DecisionContext",
    r"look_once|Look once": "observe_outcome, Observe outcome",
    r"Spell|read_case|without_gravest": "DecisionBuilder, assess_faults",
    r"why_hands_off|held_in_the_middle|why_not_given_up": "hands_off_reason, blocked_mid_recovery, …",
    r"[Rr]ungs?|NextRung|next_rungs|HEIGHT": "escalation step, DISRUPTIVENESS",
    r"begun_anew|outlasts_its_boot|is_heir_of_job|has_riddle|owes_job": "rebased_on_latest_boot, …",
    r"good_since|good_run": "healthy_since, diagnostic_baseline",
    r"(?:recovery|domain)[./](?:brakes|case|spell|heal|surroundings|counted)|held_back|out_of_date|[Bb]rakes that": (
        "guardrails, assessment, blocked_before_start, stale, …"
    ),
    r"(?:policy|review|jobs)[./](?:knobs|doubts|tally|lost|one_directory|pairs|recipe)|[Ll]adder rung": (
        "policy_models, policy_lint, incident_stats, lost_work, …"
    ),
    r"correlation\.echoes|only echoes": "secondary faults",
    # Nodes, machines and tasks
    r"[Gg]uests?|set_guests_aside|bring_guests_back": "unmanaged task",
    r"[Ss]tand-ins?|stand_ins?": "replacement node",
    r"late_machine|_?let_go|let_go_of_\w+": "promote_replacement, release_…",
    r"expect_late|owed_by|GiveBack|machines\.give_back": "Termination",
    # Notifications
    r"tell_owner|tell_job|told_line|meant_by": "notify_job_owner, notify_job_lifecycle, find_timeline_entry, …",
    # Ports
    r"[Ww]atchlist|[Gg]limpses?": "FleetIndex, NodeLiveness",
    r"Witnesses|ports\.witnesses": "LivenessProbes",
    r"TryWay|try_way|Messenger|ports\.messenger": "StartFabricTest, Notifier",
    r"[Tt]he ways? (?:between|to another)|fabric orders?": "the network between nodes",
    r"Seats?|Recipes?|Guests": "Placement, TaskDefinition, UnmanagedTask",
    # The agent
    r"Speaker|Stranger|NotTold|Occupied|Zeros|_bury_dead|SignedPost": "EventFactory, IdentityError, …",
    r"(?:agent|checks)[./](?:looks|one_look|look|watch|answer|one_cause|holders)": "check_runner, check_process, …",
    r"agent[./](?:rot|bell|sole|later|chance|caller|sight|trials|exhibits|gather)": "eventfd_event, …",
    r"agent[./](?:dating|shown_step|owner|trust|signed_post|reasons|beat|pulse|orders?)": "clock_correction, …",
    r"services[./]orders|stale order|order (?:has expired|expires|names)": "command",
    # The simulation
    r"Blows?|blows?|parse_blow": "injected failure",
    r"TrueNode|true_node|Seam|simulation[./](?:neighbours|people|strikes)": "GroundTruth, FaultInjectingPort, …",
    # Words of escalations
    r"HELD_IN_THE_MIDDLE|JOB_OUTLASTS_THE_WAIT|ASKS_FOR_A_HUMAN|NEVER_SETTLED": "RECOVERY_BLOCKED, JOB_END_TIMEOUT, …",
    r"OTHER_OWNER|ISOLATED_AS_ASKED|BROKEN_NODE_LEFT|RULES_CHANGED|TOO_MANY_DECISIONS": "EXTERNAL_REMEDIATOR, …",
    # States of the workflows
    r"Nobody could look|Wait for news|Hand incident over|Recovery broke": "Outcome unknown, Wait for condition, …",
    r"Start now\?|Launch now\?|Judge checks|Let findings settle|Handed to a human": "Evaluate diagnostics, …",
    # Riddles
    r"what is none|of whom nobody|nobody tells of": "a sentence that names its subject",
    r"an echo|[Ee]choes or notes": "a secondary fault",
}
# Riddles, which no code outside of the command line and the tests may have: a sentence names its subject.
RIDDLES = (
    r"[Ww]hoever|[Oo]f whom|[Oo]f whose|anew|wherefrom|of late|for ever"
    r"|that is none|nobody tells|are none of ours|nobody knows"
)
CORE = (
    "nodeheal/domain/*.py",
    "nodeheal/operations/*.py",
    "nodeheal/ports/*.py",
    "nodeheal/services/*.py",
    "lambdas/*.py",
)
# The code around the core must not have these either. In the core, reasons of decisions have some of them, which stored
# incidents and golden files repeat.
MORE_RIDDLES = (
    r"[Ll]est|such as it is|so-manieth|[Mm]end(?:s|ed|ing)?|[Rr]eckon(?:s|ed|ing)?|comes? to grief|[Bb]etrays?"
    r"|nobody can tell|what is to be said|are none of ours|of which nobody|that are none|which is none"
)
AROUND = (
    "nodeheal/agent/*",
    "nodeheal/adapters/*",
    "nodeheal/parsers/*",
    "nodeheal/checkpoints/*",
    "nodeheal/simulation/*",
    "nodeheal/contract/*",
    "nodeheal/policies/*",
    "stacks/*",
    "sandbox/*",
    "bench/*",
    "tools/*",
)
# Docstrings that say nothing by themselves.
EMPTY_DOCSTRING = r"(?:[Tt]he same|Likewise|As (?:ever|above|the other (?:one )?does))\b[^.]{0,20}\."
# (file, word), both as patterns: why the word stays there.
ALLOWED = {
    ("nodeheal/simulation/fleet.py", "mended"): "words of a run's trace, whose digest is compared",
    ("nodeheal/simulation/operators.py", "anew"): "words of a run's trace, whose digest is compared",
    ("nodeheal/api/*.py", "good_since|good_run"): "keys of `--json`, which programs read",
    ("nodeheal/cli/node_view.py", "good_since|good_run"): "the same",
    ("nodeheal/domain/fleet/node.py", "rung"): "the name under which past recoveries are stored",
    ("nodeheal/domain/recovery/ending.py", "rung"): "the name under which past recoveries are stored",
    ("nodeheal/services/recovery/read_situation.py", "rung"): "the name under which past recoveries are stored",
    ("tests/*.py", "rung"): "the name under which past recoveries are stored",
    ("nodeheal/contract/names.py", "guest"): "the mark of tasks that run now",
    ("nodeheal/adapters/aws/timeline_items.py", "guest"): "ids of entries in stored timelines",
    ("nodeheal/services/recovery/unmanaged_tasks.py", "guest"): "ids of entries in stored timelines",
    ("docs/isolation.md", "guest"): "the mark of tasks that run now",
    ("tests/simulation/test_co_tenants.py", "guest"): "words of a run's trace, whose digest is compared",
    ("nodeheal/simulation/co_tenants.py", "guest"): "words of a run's trace, whose digest is compared",
    ("nodeheal/agent/checks/host_load.py", "guests?"): "the kernel's word for virtual machines",
    ("nodeheal/domain/faults/catalog.csv", "guest"): "the vendor's word for a virtual machine",
    ("docs/reference/faults.md", "guest"): "the vendor's word for a virtual machine",
    ("docs/adr/0027-job-files.md", "blow"): "a verb",
    ("docs/runbooks/budget-full.md", "rung"): "of an alarm",
    ("tests/support/fuse.py", "blows"): "a verb: what a fuse does",
    ("sandbox/*", "[Ss]tand-ins?"): "a program that takes the place of a real one",
    ("tests/*", "[Ss]tand-ins?"): "a program that takes the place of a real one",
    ("docs/fidelity.md", "stand-in"): "a program that takes the place of a real one",
    ("docs/jobs.md", "stand-in"): "a program that takes the place of a real one",
    ("docs/adr/0048-*", "stand-in"): "a program that takes the place of a real one",
}
# Pages of the past: what a release was, and what it has left behind; and what quotes the code.
_NOT_READ = (
    "CHANGELOG.md",
    "tests/golden/in_flight/*",
    "tests/architecture/test_language.py",
    "tests/mutants/noticed.csv",
    "docs/fleet/report.json",
)
_ENDINGS = {".py", ".md", ".csv", ".toml", ".json", ".yml", ".yaml", ".sh", ".txt", ""}


def _files() -> dict[str, str]:
    told = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [REPOSITORY / name for name in told.stdout.splitlines()]
    read = [path for path in paths if path.is_file() and not path.is_symlink() and path.suffix in _ENDINGS]
    names = {path.relative_to(REPOSITORY).as_posix(): path for path in read}
    return {name: _text(path) for name, path in names.items() if not any(fnmatch(name, one) for one in _NOT_READ)}


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        return ""


FILES = _files()


def _is_allowed(name: str, word: str) -> bool:
    return any(fnmatch(name, file) and re.fullmatch(pattern, word) for file, pattern in ALLOWED)


def _is_held(name: str) -> bool:
    return any(fnmatch(name, folder) for folder in AROUND)


def complaints(text: str, pattern: str, name: str) -> list[str]:
    """Each line of the text with a word that is banned and not allowed there."""
    found = re.finditer(rf"(?<!\w)(?:{pattern})(?!\w)", text)
    lines = [(text.count("\n", 0, one.start()) + 1, one[0]) for one in found if not _is_allowed(name, one[0])]
    return [f"{name}:{number}: {word}" for number, word in lines]


@pytest.mark.parametrize(("pattern", "instead"), BANNED.items())
def test_no_file_has_a_word_that_is_out_of_use(pattern: str, instead: str) -> None:
    found = [line for name, text in FILES.items() for line in complaints(text, pattern, name)]

    assert found == [], f"write {instead}"


def test_the_core_speaks_in_no_riddles() -> None:
    core = {name: text for name, text in FILES.items() if any(fnmatch(name, folder) for folder in CORE)}

    found = [line for name, text in core.items() for line in complaints(text, RIDDLES, name)]

    assert len(core) > 100
    assert found == []


def test_the_code_around_the_core_speaks_in_no_riddles() -> None:
    around = {name: text for name, text in FILES.items() if _is_held(name)}

    found = [line for name, text in around.items() for line in complaints(text, f"{RIDDLES}|{MORE_RIDDLES}", name)]

    assert all(any(fnmatch(name, folder) for name in around) for folder in AROUND)
    assert found == []


def test_a_docstring_names_what_it_describes() -> None:
    code = {name: text for name, text in FILES.items() if name.endswith(".py") and _is_held(name)}
    docstrings = [
        (name, ast.get_docstring(node) or "")
        for name, text in code.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]

    assert len(docstrings) > 4_000
    assert [(name, text) for name, text in docstrings if re.fullmatch(EMPTY_DOCSTRING, text)] == []


@pytest.mark.parametrize(
    "text", ["lest it be lost", "whoever asks", "a fault that a reboot mends", "it is reckoned with"]
)
def test_a_riddle_is_found(text: str) -> None:
    assert complaints(text, f"{RIDDLES}|{MORE_RIDDLES}", "nodeheal/agent/x.py") != []


@pytest.mark.parametrize("text", ["The same.", "Likewise.", "The same, of the owner."])
def test_an_empty_docstring_is_found(text: str) -> None:
    assert re.fullmatch(EMPTY_DOCSTRING, text)


def test_no_file_is_named_by_a_word_that_is_out_of_use() -> None:
    names = "\n".join(part for name in FILES for part in re.split(r"[/.]|test_", name))

    assert [line for pattern in BANNED for line in complaints(names, pattern, "")] == []


@pytest.mark.parametrize(
    "text",
    [
        "from nodeheal.agent.checks import looks\nfrom nodeheal.agent.checks.looks import x",
        "class Watchlist:",
        "a sign of life",
    ],
)
def test_a_word_that_is_out_of_use_is_found(text: str) -> None:
    assert [line for pattern in BANNED for line in complaints(text, pattern, "nodeheal/x.py")] != []


def test_each_exception_is_needed() -> None:
    patterns = [re.compile(rf"(?<!\w)(?:{pattern})(?!\w)") for pattern in (*BANNED, RIDDLES, MORE_RIDDLES)]
    words = {name: {one[0] for each in patterns for one in each.finditer(text)} for name, text in FILES.items()}

    unused = [
        row
        for row in ALLOWED
        if not any(fnmatch(name, row[0]) and re.fullmatch(row[1], word) for name in words for word in words[name])
    ]

    assert unused == []
