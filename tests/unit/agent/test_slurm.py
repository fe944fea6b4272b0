"""`nodeheal-agent slurm` where Slurm's commands fail half-way, which no real Slurm does when a test wants it."""

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from nodeheal.agent.commands.node_command import EXIT_DONE
from nodeheal.agent.commands.table import carry_out
from nodeheal.agent.diagnostics.bench import Output
from nodeheal.agent.runtime.probe import Ran
from nodeheal.agent.runtime.stream import NotRun
from nodeheal.agent.slurm import controller as agent
from nodeheal.agent.slurm import verbs
from nodeheal.agent.slurm.controller import Controller, NoAnswerError
from nodeheal.contract import words
from stacks.settings import REPOSITORY

WHERE, INCIDENT = "10.0.0.1", "inc-20261127T035044-mi-0a-0123456789"
SAID = {
    "sinfo": f"node1|{WHERE}|draining|root|100|nodeheal:inc-1|\n",
    "squeue": "7|RUNNING|ada|1|0|1|gpu|1|node1|100|0|100|200|300|None|llama|\n",
}


@pytest.mark.parametrize(
    "complaint",
    [
        "slurm_requeue error: Slurm backup controller in standby mode",
        "slurm_requeue error: Unable to contact slurm controller (connect failure)",
        "slurm_requeue error: Socket timed out on send/recv operation",
        "slurm_requeue error: Zero Bytes were transmitted or received",
    ],
)
@pytest.mark.parametrize("is_known_to_run", [True, False])
def test_a_controller_that_goes_away_meanwhile_does_not_mean_that_the_job_has_ended(
    complaint: str, is_known_to_run: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "_mark", lambda: "|")

    def run(command: Sequence[str], _: float) -> Output:
        if command[0] == "scontrol":
            return Output("", f"{complaint}\n", Ran(exit_code=1))
        return Output(SAID[command[0]], "", Ran(exit_code=0))

    def stream(command: Sequence[str], _: float) -> list[bytes]:
        return [SAID[command[0]].encode()] if is_known_to_run else []

    with pytest.raises(NoAnswerError, match=re.escape(complaint)):
        Controller(run, stream).requeue("7", WHERE, 0)


def test_a_job_list_that_cannot_be_had_makes_no_failure_of_a_drain(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The control plane asks again for the jobs, of a node that takes no more work."""
    monkeypatch.setattr(agent, "_mark", lambda: "|")

    def hangs(command: Sequence[str], _: float) -> Iterator[bytes]:
        yield SAID["squeue"].encode()[:20]
        raise NotRun("no answer within 10 s", "squeue: error: slurm_load_jobs\n")

    controller = Controller(lambda command, _: Output(SAID.get(command[0], ""), "", Ran(exit_code=0)), hangs)
    monkeypatch.setattr(verbs, "Controller", lambda: controller)

    ended = carry_out(["slurm", "drain", "--addresses", WHERE, "--incident", INCIDENT])

    told = capsys.readouterr()
    assert (ended, json.loads(told.out)["nodes"][WHERE]["jobs"]) == (EXIT_DONE, None)
    assert "the jobs of node1 are not known: squeue: no answer within 10 s; it said 'squeue: error" in told.err


def test_a_node_with_a_thousand_small_jobs_has_an_answer_that_ssm_hands_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(agent, "_mark", lambda: "|")
    failed = "{at}|FAILED|eve|1|0|1|gpu|1|node1|100|256|100|200|{now}|NonZeroExitCode|" + "ü" * 64 + "|\n"
    jobs = [failed.format(at=at, now=int(time.time()) - 1) for at in range(1_000)] + [SAID["squeue"]]
    asked = Controller(
        lambda command, _: Output(SAID[command[0]], "", Ran(exit_code=0)),
        lambda command, _: (job.encode() for job in jobs),
    )
    monkeypatch.setattr(verbs, "Controller", lambda: asked)

    carry_out(["slurm", "jobs", "--addresses", WHERE])

    answer = capsys.readouterr().out
    assert len(answer) < 24_000
    assert "7" in [job["job_id"] for job in json.loads(answer)["jobs"]]  # the one that runs


def test_the_document_takes_the_incidents_and_jobs_that_the_agent_takes() -> None:
    parameters = json.loads((REPOSITORY / "packaging" / "ssm" / "slurm.json").read_text("utf-8"))["parameters"]

    taken = [parameters[name]["allowedPattern"].strip("^$") for name in ("Incident", "Job")]

    incident, job = words.INCIDENT.strip("^$"), verbs._JOB_ID.pattern
    assert taken == [f"(none|{incident}(,{incident}){{0,9}})", f"(none|{job})"]


@pytest.mark.parametrize(
    "does", [Controller.nodes_at, lambda it, where: it.replace(where, "power_down"), Controller.resume]
)
def test_a_name_that_could_be_an_option_is_refused_whatever_is_asked(
    does: Callable[[Controller, list[str]], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "_mark", lambda: "|")
    said = SAID["sinfo"].replace("node1|", "--help|")

    with pytest.raises(NoAnswerError, match="'--help', which is not a valid node name"):
        does(Controller(lambda command, _: Output(said, "", Ran(exit_code=0))), [WHERE])


def test_a_command_that_does_not_answer_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = Output("", "sinfo: error: cannot stat file /nope, retrying in 1sec\n", Ran(error="no answer within 10 s"))

    with pytest.raises(NoAnswerError, match="within 10 s; it said 'sinfo: error: cannot stat file /nope"):
        Controller(lambda command, _: hangs).nodes()
