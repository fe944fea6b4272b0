"""job.yaml: what is wrong is named by line and field, several at once, and no bytes make a traceback."""

import json
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nodeheal.api.job_file import JobFileRefused, parse_job_file
from nodeheal.api.yaml_tree import LARGEST
from nodeheal.cli import jobs
from nodeheal.cli.job_wait import EXIT_CODES, TIME_IS_UP
from nodeheal.cli.main import app
from nodeheal.contract.job_spec import OVERRIDES_AT_MOST, JobSpec, Preflight
from nodeheal.contract.vocabulary import Check, CheckpointFormat, JobState
from nodeheal.services.jobs.prepare_job import file_doubts

RUN = CliRunner()
PAGE = Path(__file__).parents[2] / "docs" / "jobs.md"
WHOLE = """\
# yaml-language-server: $schema=job.schema.json
name: llama-7b
pool: h100
nodes: 8
accelerators: 8
image: 111122223333.dkr.ecr.eu-central-1.amazonaws.com/llama:3
command: [torchrun, --nproc-per-node=8, train.py]
environment:
  NCCL_DEBUG: WARN
  EPOCHS: "3"
mounts:
  - {source: /fsx/llama, target: /data}
devices: [/dev/infiniband]
checkpoints:
  directory: /fsx/llama/checkpoints//
  format: megatron
preflight:
  level: 2
  checks: [dcgm, efa]
restarts: {of_application: 1}
owner: Ada <ada@example.com>
"""
MINIMAL = "name: a\npool: p\nnodes: 2\nimage: x\n"
MUTATIONS, SEED = 400, 20_260_301


def wrong(text: str | bytes) -> list[str]:
    """The complaints, each with its line in front."""
    with pytest.raises(JobFileRefused) as refused:
        parse_job_file(text.encode() if isinstance(text, str) else text)
    return [f"{one.line}: {one}" for one in refused.value.complaints]


def test_a_whole_file_is_read_as_it_is_meant() -> None:
    spec = parse_job_file(WHOLE.encode())

    assert (spec.name, spec.nodes, spec.command[0]) == ("llama-7b", 8, "torchrun")
    assert spec.environment == {"NCCL_DEBUG": "WARN", "EPOCHS": "3"}
    assert spec.checkpoints is not None
    assert (spec.checkpoints.directory, spec.checkpoints.format) == (
        "/fsx/llama/checkpoints",
        CheckpointFormat.megatron,
    )
    assert spec.preflight.checks == (Check.dcgm, Check.efa)


def test_everything_that_is_wrong_is_named_at_once_with_its_line() -> None:
    text = MINIMAL.replace("nodes: 2", "nodes: 0") + "gpus: 8\npreflight:\n  level: 9\n  recent: 3\n"

    assert wrong(text) == [
        "3: nodes: 0 is too small; give at least 1",
        "5: gpus: there is no such field; did you mean `accelerators`?",
        "7: preflight.level: 9 is too large; give at most 4",
        "8: preflight.recent: there is no such field; did you mean `recent_seconds`?",
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (MINIMAL.replace("nodes: 2\n", ""), "1: nodes: is missing"),
        (MINIMAL.replace("2", "yes"), "3: nodes: true is a boolean; give a whole number"),
        (MINIMAL.replace("2", "'2'"), '3: nodes: "2" is text; give a whole number'),
        (MINIMAL + "task_definition: y\n", "4: image: give either image or task_definition"),
        (MINIMAL + "name: b\n", "5: name: stands in line 1 already; only one of them would hold"),
        (MINIMAL + "mounts:\n- source: /a\n", "6: mounts.0.target: is missing"),
        (
            MINIMAL + "mounts: [{source: /x, target: /run/nodeheal}]\n",
            "5: mounts: /run/nodeheal is mounted by nodeheal",
        ),
        (MINIMAL + "mounts: [{source: /run/nodeheal, target: /run/nodeheal}]\n", "remove it"),
        (MINIMAL + "devices: [/dev/kfd, /dev/dri, /dev/kfd]\n", "5: devices: /dev/kfd is listed twice"),
        (MINIMAL + "devices: [/dev/infiniband, /dev/infiniband/]\n", "5: devices: /dev/infiniband is listed twice"),
        (MINIMAL + "environment:\n  A: 1\n", '6: environment.A: text is wanted; put it in quotes: "1"'),
        (MINIMAL + "command: [true]\n", '5: command.0: text is wanted; put it in quotes: "true"'),
        (MINIMAL + "environment:\n  1: a\n", "6: '1': a field's name is text; put it in quotes if it is meant so"),
        (
            MINIMAL + "environment:\n  A-=B: a\n",
            "6: environment.A-=B: \"A-=B\" does not fit; give letters, digits, '_'",
        ),
        (MINIMAL.replace("name: a", "name: Llama_7b"), '1: name: "Llama_7b" does not fit; give lower-case letters'),
        (MINIMAL + '"\\e[2J": 1\n', "5: \ufffd[2J: there is no such field"),
        (MINIMAL + 'owner: "\\ud800"\n', "5: it holds half a character"),
        (MINIMAL + "environment: {RANK: '1'}\n", "5: environment: RANK is set by nodeheal for every rank"),
        (MINIMAL + "owner: ada\n", "5: owner: 'ada' is not an email address"),
        (MINIMAL + "checkpoints: {directory: ckpt}\n", "5: checkpoints.directory: give an absolute path"),
        (MINIMAL + "preflight: {checks: [DCGM]}\n", "did you mean `dcgm`?"),
        (MINIMAL + "preflight: {checks: [5]}\n", "5: preflight.checks.0: 5 is not known; give dcgm, "),
        (MINIMAL + "x: !!python/object/apply:os.system [id]\n", "there is no such field"),
        (MINIMAL + "x: !!python/name:os.system\n", "5: '': the tag tag:yaml.org,2002:python/name:os.system means"),
        (MINIMAL + "x: !!int abc\n", "5: 'abc': it is not valid as int"),
        ("- a\n", "1: is a list; give an object of fields"),
        ("", "1: it is empty"),
        ("a: [1\n", "it is not YAML"),
        ("a: 1\n---\nb: 2\n", "it is not YAML"),
        ("a: &a [*a]\n", "it is nested deeper than 32 levels"),
        ("[" * 5_000, "it is nested deeper than 32 levels"),
        ("a: 1\x00", "it is not YAML"),
    ],
)
def test_what_is_wrong_says_where_and_what(text: str, complaint: str) -> None:
    assert complaint in "\n".join(wrong(text))


@pytest.mark.parametrize("given", ["/fsx/llama/", "//fsx///llama", "/fsx/./llama", "/./fsx/llama/."])
def test_one_directory_is_one_text_however_it_is_written(given: str) -> None:
    spec = parse_job_file(f"{MINIMAL}checkpoints: {{directory: {given}}}\n".encode())

    assert spec.checkpoints is not None
    assert spec.checkpoints.directory == "/fsx/llama", "or two jobs write into it, and nobody sees that"


@pytest.mark.parametrize(("given", "level"), [("off", 0), ("'off'", 0), ("2", 2)])
def test_a_preflight_as_people_write_it_is_answered_with_what_was_meant(given: str, level: int) -> None:
    with pytest.raises(JobFileRefused) as refused:
        parse_job_file(f"name: a\npool: p\nnodes: 1\ntask_definition: t\npreflight: {given}\n".encode())

    assert f"did you mean `preflight: {{level: {level}}}`?" in str(refused.value)


def test_an_alias_of_aliases_is_not_followed_for_ever() -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )

    assert "more than 10,000 values" in wrong(bomb)[0]


def test_bytes_that_are_no_text_and_files_that_are_no_job_files_are_said_to_be() -> None:
    assert wrong(b"name: a\npool: \xff\n") == ["2: it is not UTF-8 text"]
    assert "more than 256 KiB" in wrong(b"#" * (LARGEST + 1))[0]


def test_what_ecs_would_not_take_beside_a_task_definition_is_refused_before() -> None:
    text = f"name: a\npool: p\nnodes: 2\ntask_definition: t:1\nenvironment:\n  A: '{'x' * OVERRIDES_AT_MOST}'\n"

    assert "too many with a task_definition" in wrong(text)[0]
    assert parse_job_file(text.replace("task_definition: t:1", "image: i").encode()).environment


def test_no_mutation_of_a_file_makes_a_traceback() -> None:
    rng, whole = random.Random(SEED), WHOLE.encode()
    outcomes = {True: 0, False: 0}

    for _ in range(MUTATIONS):
        raw = mutated(whole, rng)
        try:
            is_job = isinstance(parse_job_file(raw), JobSpec)
        except JobFileRefused as refused:
            is_job = False
            assert refused.complaints
            assert all(1 <= one.line <= raw.count(b"\n") + 2 for one in refused.complaints), raw
        outcomes[is_job] += 1

    assert min(outcomes.values()) > MUTATIONS // 20, "mutations that all fail, or none, prove little"


def mutated(whole: bytes, rng: random.Random) -> bytes:
    """The file with a few bytes, lines or words changed."""
    raw = bytearray(whole)
    words = [
        b"!!int",
        b"&a",
        b"*a",
        b"? ",
        b"- ",
        b": ",
        b"{",
        b"[",
        b'"',
        b"\x00",
        b"\xff",
        b"\t",
        b"1e999",
        b"~",
        b"<<: ",
    ]
    words += [
        b"!!binary",
        b"!!timestamp",
        b"2026-99-99",
        b"0x",
        b"|",
        b">",
        b"%YAML 9.9\n",
        b"---\n",
        b"\xf0\x9f\x98\x80",
    ]
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(raw))
        match rng.randrange(4):
            case 0:
                raw[at] = rng.randrange(256)
            case 1:
                raw[at:at] = rng.choice(words)
            case 2:
                del raw[at : at + rng.randint(1, 30)]
            case _:
                lines = bytes(raw).split(b"\n")
                lines.insert(rng.randrange(len(lines)), rng.choice(lines))
                raw = bytearray(b"\n".join(lines))
    return bytes(raw)


def test_validate_says_so_and_leaves_with_a_code(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(WHOLE)

    good = RUN.invoke(app, ["jobs", "validate", str(file)])
    file.write_text(WHOLE.replace("nodes: 8", "nodse: 8"))
    bad = RUN.invoke(app, ["jobs", "validate", str(file)])
    told = json.loads(RUN.invoke(app, ["jobs", "validate", str(file), "--json"]).output)
    absent = RUN.invoke(app, ["jobs", "validate", str(tmp_path / "none.yaml")])

    assert (good.exit_code, good.output) == (0, f"{file}: valid, job llama-7b\n")
    assert (bad.exit_code, absent.exit_code) == (2, 2)
    assert f"{file}:4: nodse: there is no such field; did you mean `nodes`?" in bad.output
    assert [one["line"] for one in told["errors"]] == [2, 4]
    assert not told["is_valid"]


def test_a_checkpoint_directory_that_the_container_does_not_see_is_doubted(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(WHOLE.replace("source: /fsx/llama,", "source: /fsx/llama-13b,"))

    said = RUN.invoke(app, ["jobs", "validate", str(file)])

    assert said.exit_code == 0
    assert "warning: checkpoints.directory: no mount lets the container write to /fsx/llama/checkpoints" in said.output


def test_the_schema_is_what_the_model_says_and_every_field_is_described() -> None:
    schema = json.loads(RUN.invoke(app, ["jobs", "schema"]).output)

    assert schema["properties"].keys() == JobSpec.model_fields.keys()
    models = [schema, *(one for one in schema["$defs"].values() if "properties" in one)]
    unsaid = [
        name
        for model in models
        for name, field in model["properties"].items()
        if not field.get("description") and "$ref" not in field and "anyOf" not in field
    ]
    assert unsaid == []


def test_the_page_for_researchers_has_a_file_that_is_valid_and_names_every_state() -> None:
    page = PAGE.read_text("utf-8")
    block = page.split("```yaml\n")[1].split("```")[0]

    spec = parse_job_file(block.encode())

    assert file_doubts(spec) == []
    assert spec.name in page.split("```yaml")[1]
    assert not [state for state in JobState if f"| {state} |" not in page]


def test_the_page_names_every_command_and_every_exit_code() -> None:
    page = PAGE.read_text("utf-8")
    commands = [
        command.name or command.callback.__name__ for command in jobs.app.registered_commands if command.callback
    ]

    assert not [name for name in commands if f"| `jobs {name}" not in page]
    assert not [code for code in (*EXIT_CODES.values(), TIME_IS_UP) if f"| {code} |" not in page]


@pytest.mark.parametrize("path", ["dev/infiniband", "/dev/../etc", "/etc/shadow", "/dev/a:rwm", "/dev/a b", "/dev"])
def test_a_device_is_a_plain_path_below_dev(path: str) -> None:
    [complaint] = wrong(MINIMAL + f"devices: [{path!r}]\n")

    assert "devices" in complaint


def test_a_device_goes_with_an_image_only() -> None:
    text = MINIMAL.replace("image: x", "task_definition: x:1") + "devices: [/dev/infiniband]\n"

    assert "devices" in "".join(wrong(text))


@pytest.mark.parametrize(
    ("said", "is_warned"),
    [
        ("", False),
        ("accelerators: 8\n", True),
        ("accelerators: 8\ndevices: [/dev/infiniband]\n", False),
    ],
)
def test_gpus_of_several_nodes_without_an_adapter_are_warned_of(said: str, is_warned: bool) -> None:
    doubts = file_doubts(parse_job_file((MINIMAL + said).encode()))

    assert any(doubt.startswith("devices: ") for doubt in doubts) is is_warned


@pytest.mark.parametrize(
    ("directory", "why"),
    [
        ("/" + "a/" * 25, "has 25 parts"),
        ("/", "below the root"),
        ("//./", "below the root"),
        ("/a/../b", "without '..'"),
    ],
)
def test_a_checkpoint_directory_that_cannot_be_held_is_refused_by_name(directory: str, why: str) -> None:
    text = f"name: a\npool: h100\nnodes: 1\nimage: x\ncheckpoints:\n  directory: {directory}\n"

    with pytest.raises(JobFileRefused) as refused:
        parse_job_file(text.encode())

    [one] = [each for each in refused.value.complaints if each.field == "checkpoints.directory"]
    assert (one.line, why in one.why) == (6, True)


@pytest.mark.parametrize(
    ("said", "level", "seconds"),
    [
        ("", 2, 900 + 120 + 240 + 180),
        ("preflight: {level: 1}\n", 1, 300 + 120 + 190 + 180),
        ("preflight: {level: 4}\n", 4, 10_800 + 120 + 1_080 + 180),
        ("preflight: {level: 3, checks: [dcgm]}\n", 3, 3_600 + 180),
        ("preflight: {checks: [neuron, efa]}\n", 2, 720 + 120 + 180),
        ("preflight: {level: 4, timeout_seconds: 5400}\n", 4, 5_400),
        ("preflight: {level: 0}\n", 0, 300 + 120 + 190 + 180),  # what a diagnosis after a failure takes
    ],
)
def test_nodes_have_as_long_as_the_checks_of_the_level_may_take(said: str, level: int, seconds: int) -> None:
    preflight = parse_job_file((MINIMAL + said).encode()).preflight

    assert (preflight.level, preflight.seconds) == (level, seconds)


@pytest.mark.parametrize(("level", "seconds"), [(4, 900), (4, 5_399), (3, 900), (2, 60)])
def test_a_time_in_which_no_healthy_node_answers_is_refused_by_its_key(level: int, seconds: int) -> None:
    text = f"{MINIMAL}preflight: {{level: {level}, timeout_seconds: {seconds}}}\n"

    with pytest.raises(ValueError, match=f"preflight.timeout_seconds: {seconds} s is too short: level {level} takes"):
        parse_job_file(text.encode())


def test_a_job_that_was_submitted_with_too_short_a_time_can_still_be_read() -> None:
    assert Preflight.model_validate_json('{"level": 4, "timeout_seconds": 900}').seconds == 900
