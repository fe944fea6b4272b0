"""Nodes that answer before the function that asked them has noted which command it was."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from nodeheal.contract.job_steps import JobRequest
from nodeheal.domain.fleet.node import Node
from nodeheal.ports.commands import Command
from tests.support.builders import commands_in, waiting
from tests.support.job_cluster import JobCluster, finishes
from tests.support.policies import WITH_FABRIC
from tests.support.walker import Json

ASKS = {"Check nodes": 2, "Find checkpoint": 2}  # how often each asks where every node answers


class QuickNodes(JobCluster):
    """Every node answers while its command is being sent, and never again."""

    def __init__(self) -> None:
        super().__init__(policy=WITH_FABRIC, nodes=3, checkpoints={"directory": "/mnt/llama"})
        self.happenings = [finishes]
        commands, answers = commands_in(self.ports), self._answers_by_document
        send = commands.send

        def sends(to: Node, command: Command, expires_at: datetime) -> str:
            command_id = send(to, command, expires_at)
            answers[command.document]()
            return command_id

        commands.send = sends  # type: ignore

    @property
    def _answers_by_document(self) -> dict[str, Callable[[], None]]:
        return {
            "run-diagnostics": lambda: JobCluster._nodes_answer(self, self.asks),
            "test-fabric": lambda: JobCluster._ways_answer(self),
            "find-checkpoint": lambda: JobCluster._somebody_looks(self),
        }

    def _job_wait(
        self, state: str, serve: Callable[[JobRequest], None], react: Callable[[JobRequest], object]
    ) -> Callable[[Json], Any]:
        def serves(request: JobRequest) -> None:
            self.asks = request
            serve(request)

        return super()._job_wait(state, serves, (lambda _: None) if state in ASKS else react)


def test_a_job_whose_nodes_answer_at_once_starts_and_leaves_nothing_behind() -> None:
    it = QuickNodes()

    seen = it.submit()

    assert seen.end == "Completed"
    assert {name: seen.path.count(name) for name in ASKS} == ASKS
    assert waiting(it.ports) == []
    assert it.is_clean
