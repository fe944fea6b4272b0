"""`nodeheal-agent slurm doctor`: what it says of a Slurm by its own settings."""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from nodeheal.agent.diagnostics.bench import Output
from nodeheal.agent.main import main
from nodeheal.agent.runtime.probe import Ran
from nodeheal.agent.slurm.doctor import doctor
from nodeheal.parsers.slurm import parse_config
from stacks.settings import REPOSITORY

# As `scontrol show config` of Slurm 22.05.8 prints it; what the doctor does not read is left out.
CONFIG = """\
Configuration data as of 2026-11-27T03:54:22
BatchStartTimeout       = 200 sec
ClusterName             = training
HealthCheckInterval     = 0 sec
HealthCheckNodeState    = ANY
HealthCheckProgram      = (null)
JobRequeue              = 1
MessageTimeout          = 10 sec
Prolog                  = {prolog}
PrologEpilogTimeout     = 65534
PrologSlurmctld         = (null)
PrologFlags             = Alloc
ResumeProgram           = (null)
ResumeTimeout           = 900 sec
ReturnToService         = 0
SchedulerParameters     = nohold_on_prolog_fail,sched_interval=2,bf_interval=2
SLURM_CONF              = /etc/slurm/slurm.conf
SLURM_VERSION           = 22.05.8
SuspendProgram          = (null)
SuspendTime             = INFINITE

Cgroup Support Configuration:
ClusterName             = of another table

Slurmctld(primary) at head is UP
"""
# As `scontrol` of 22.05.8 says it where there is no slurm.conf.
NO_CONFIG = """\
scontrol: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host
scontrol: error: fetch_config: DNS SRV lookup failed
scontrol: error: _establish_config_source: failed to fetch config
scontrol: fatal: Could not establish a configuration source
"""
OUTPUT = Output("", "", Ran(exit_code=0))


@pytest.fixture
def config(tmp_path: Path) -> str:
    """Of a Slurm as docs/slurm.md has it."""
    return with_prolog(tmp_path, documented_prolog())


def with_prolog(folder: Path, script: str) -> str:
    """With this script, and an agent in the folder."""
    agent = program(folder / "nodeheal-agent", "#!/bin/sh\n")
    return CONFIG.format(
        prolog=program(folder / "prolog", script.replace("/opt/nodeheal/bin/nodeheal-agent", str(agent)))
    )


def documented_prolog() -> str:
    page = (REPOSITORY / "docs" / "slurm.md").read_text("utf-8")
    return page.partition("at `/etc/slurm/nodeheal-prolog`:\n\n```sh\n")[2].partition("```")[0]


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def told(config: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, tuple[str, str]]]:
    """The exit code; state and words by what they are about."""
    return told_of(replace(OUTPUT, text=config), capsys)


def told_of(output: Output, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, tuple[str, str]]]:
    def run(command: Sequence[str], _: float) -> Output:
        assert command == ["scontrol", "show", "config"]
        return output

    code = doctor(run, as_json=True)
    signs = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return code, {sign["what"]: (sign["state"], sign["said"]) for sign in signs}


def test_a_slurm_as_the_page_has_it_is_well(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, signs = told(config, capsys)

    assert code == 0
    assert {what: state for what, (state, _) in signs.items()} == {
        "slurmctld": "ok",
        "version": "ok",
        "Prolog": "ok",
        "SchedulerParameters": "ok",
        "PrologFlags": "ok",
        "PrologEpilogTimeout": "ok",
        "BatchStartTimeout": "ok",
        "ResumeTimeout": "ok",
        "ReturnToService": "ok",
        "JobRequeue": "ok",
        "SuspendProgram": "-",
        "HealthCheckProgram": "-",
    }
    assert signs["slurmctld"][1] == "training: Slurmctld(primary) at head is UP"


@pytest.mark.parametrize(
    ("before", "after", "what", "state", "words"),
    [
        ("22.05.8", "21.08.8", "version", "WRONG", "22.05 or newer"),
        ("22.05.8", "24.11.0-rc1", "version", "ok", "24.11"),
        ("22.05.8", "slurm", "version", "?", "not readable as a version"),
        ("head is UP", "head is DOWN", "slurmctld", "poor", "DOWN"),
        ("nohold_on_prolog_fail,", "", "SchedulerParameters", "WRONG", "is held"),
        ("= Alloc", "= (null)", "PrologFlags", "WRONG", "without Alloc"),
        ("= Alloc", "= (null)", "MessageTimeout", "poor", "10 s: `srun` waits no longer"),
        ("= Alloc", "= Alloc,Contain", "PrologFlags", "ok", "Alloc,Contain"),
        ("65534", "60 sec", "PrologEpilogTimeout", "WRONG", "drains a healthy node"),
        ("65534", "60", "PrologEpilogTimeout", "WRONG", "60 s"),
        ("65534", "300 sec", "PrologEpilogTimeout", "ok", "300 s"),
        ("65534", "190 sec", "PrologEpilogTimeout", "WRONG", "set 200, or none"),
        ("200 sec", "180 sec", "BatchStartTimeout", "poor", "is taken for lost; set 200"),
        ("900 sec", "60 sec", "ResumeTimeout", "poor", "set 600"),
        ("900 sec", "INFINITE", "ResumeTimeout", "ok", "INFINITE"),
        ("ReturnToService         = 0", "ReturnToService = 2", "ReturnToService", "poor", "before its diagnostics"),
        ("JobRequeue              = 1", "JobRequeue = 0", "JobRequeue", "poor", "sbatch --requeue"),
        ("HealthCheckProgram      = (null)", "HealthCheckProgram = /x", "HealthCheckProgram", "poor", "never run"),
    ],
)
def test_each_setting_is_judged(
    config: str, capsys: pytest.CaptureFixture[str], before: str, after: str, what: str, state: str, words: str
) -> None:
    assert before in config

    code, signs = told(config.replace(before, after), capsys)

    assert (signs[what][0], code) == (state, int(state == "WRONG" or what == "MessageTimeout"))
    assert words in signs[what][1]


@pytest.mark.parametrize(
    ("text", "mode", "state", "words"),
    [
        ("#!/bin/sh\nexec nhc\n", 0o755, "ok", "health, every 300 s"),
        ("exec /opt/nodeheal/bin/nodeheal-agent check\n", 0o755, "WRONG", "does not begin with `#!`"),
        ("#!/bin/sh\n", 0o644, "WRONG", "is not executable"),
    ],
)
def test_a_health_check_must_be_a_program(
    tmp_path: Path, config: str, capsys: pytest.CaptureFixture[str], text: str, mode: int, state: str, words: str
) -> None:
    program(tmp_path / "health", text).chmod(mode)
    config = config.replace("Interval     = 0 sec", "Interval = 300 sec")
    config = config.replace("HealthCheckProgram      = (null)", f"HealthCheckProgram = {tmp_path}/health")

    found = told(config, capsys)[1]["HealthCheckProgram"]

    assert (found[0], words in found[1]) == (state, True)


@pytest.mark.parametrize(
    ("seconds", "state", "words"),
    [("INFINITE", "poor", "Slurm refuses `power_down`"), ("600 sec", "ok", "/x, SuspendTime 600 s")],
)
def test_a_cluster_that_switches_nodes_off_needs_a_time_for_that(
    config: str, capsys: pytest.CaptureFixture[str], seconds: str, state: str, words: str
) -> None:
    config = config.replace("SuspendProgram          = (null)", "SuspendProgram = /x")

    found = told(config.replace("INFINITE", seconds), capsys)[1]["SuspendProgram"]

    assert (found[0], words in found[1]) == (state, True)


def test_without_a_prolog_its_settings_do_not_matter(capsys: pytest.CaptureFixture[str]) -> None:
    code, signs = told(CONFIG.format(prolog="(null)").replace("= Alloc", "= (null)"), capsys)

    assert (code, signs["Prolog"][0]) == (0, "poor")
    assert signs.keys().isdisjoint({"PrologFlags", "BatchStartTimeout", "SchedulerParameters"})


CALL = "/opt/nodeheal/bin/nodeheal-agent prolog"


@pytest.mark.parametrize(
    ("script", "state", "words"),
    [
        ("#!/bin/sh\nexit 0\n", "poor", "does not call"),
        (f"#!/bin/sh\n# {CALL}\n", "poor", "does not call"),
        (None, "?", "cannot be read here"),
        (f"{CALL}\n", "WRONG", "does not begin with `#!`"),
        (f"#!/nope/sh\n{CALL}\n", "WRONG", "begins with #!/nope/sh, which does not exist here"),
        (f"#!/bin/sh\n{CALL} --level 0 --without mount\n", "WRONG", "every job starts: argument --without"),
        (
            f'#!/bin/sh\nagent={CALL.split()[0]}\n"$agent" prolog --levle 2\n',
            "WRONG",
            "unrecognized arguments: --levle",
        ),
        (f"#!/bin/sh\nexec {CALL} \\\n  --seconds 5\n", "WRONG", "argument --seconds: '5': give a number, 30 to"),
        (
            f"#!/bin/sh\nif {CALL} --level=9 2>/dev/null; then true; fi\n",
            "WRONG",
            "argument --level: invalid choice: 9",
        ),
        (f"#!/bin/sh\n{CALL} ''\n", "WRONG", "unrecognized arguments"),
        (f"#!/bin/sh\n! {CALL} --level 2 2>&1\n", "ok", "at most 180 s"),
        (f"#!/bin/sh\n{CALL} --level $LEVEL\n", "?", "options cannot be read here: --level $LEVEL"),
        (
            "#!/bin/sh\nagent=/nope/nodeheal-agent\n${agent} prolog\n",
            "poor",
            "calls /nope/nodeheal-agent, which does not exist here",
        ),
        (f"#!/bin/sh\n{CALL} --without=mounts,own,own/lustre || exit 1\n", "ok", "at most 180 s"),
    ],
)
def test_a_prolog_must_call_an_agent_that_is_there_with_options_that_it_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], script: str | None, state: str, words: str
) -> None:
    """One that is not here may be on the nodes."""
    config = CONFIG.format(prolog=tmp_path / "prolog") if script is None else with_prolog(tmp_path, script)

    code, signs = told(config, capsys)

    assert (code, signs["Prolog"][0], words in signs["Prolog"][1]) == (int(state == "WRONG"), state, True)


def test_slurm_must_give_a_prolog_as_long_as_its_own_options_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = with_prolog(tmp_path, f"#!/bin/sh\n{CALL} --level 2 --seconds 900\n").replace("65534", "300")

    code, signs = told(config, capsys)

    assert (code, signs["PrologEpilogTimeout"][0], signs["BatchStartTimeout"][0]) == (1, "WRONG", "poor")
    assert "takes 900 s" in signs["PrologEpilogTimeout"][1]
    assert signs["BatchStartTimeout"][1].endswith("set 920")


def test_prologs_that_are_numbered_are_found(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As Slurm 24.05 and newer print them."""
    code, signs = told(config.replace("Prolog                  =", "Prolog[0] ="), capsys)

    assert (code, signs["Prolog"][0]) == (0, "ok")


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (replace(OUTPUT, ran=Ran(error="not installed")), f"in no folder of PATH: {os.environ['PATH']}"),
        (replace(OUTPUT, ran=Ran(exit_code=1), errors=NO_CONFIG), "set SLURM_CONF"),
        (replace(OUTPUT, ran=Ran(error="no answer within 10 s")), "scontrol: no answer within 10 s"),
        (
            replace(OUTPUT, ran=Ran(error="no answer within 10 s"), errors="cannot stat file\nretrying in 1sec\n"),
            "scontrol: no answer within 10 s; it said 'retrying in 1sec'",
        ),
        (replace(OUTPUT, ran=Ran(exit_code=1), errors="Unable to contact slurm controller"), "Unable to contact"),
        (replace(OUTPUT, text="what?"), "scontrol printed no configuration: 'what?'"),
    ],
)
def test_a_slurm_that_does_not_answer_is_wrong(capsys: pytest.CaptureFixture[str], output: Output, words: str) -> None:
    code, signs = told_of(output, capsys)

    assert (code, list(signs)) == (1, ["slurmctld"])
    assert (signs["slurmctld"][0], words in signs["slurmctld"][1]) == ("WRONG", True)


def test_the_command_says_a_line_for_each(
    tmp_path: Path, config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = tmp_path / "scontrol"
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{config}END\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    assert main(["slurm", "doctor"]) == 0
    assert "PrologFlags             ok     Alloc" in capsys.readouterr().out.splitlines()


def test_what_is_not_set_is_empty(config: str) -> None:
    settings = parse_config(config)

    assert (settings["HealthCheckProgram"], settings["ClusterName"]) == ("", "training")
