"""Nodes that answer before the function that asked them has noted which command it was."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nodeheal.contract.job_steps import JobRequest
from tests.unit.builders import waiting
from tests.workflows.job_cluster import JobCluster, finishes
from tests.workflows.test_ways import WITH_FABRIC
from tests.workflows.walker import Json

ASKS = {"Check nodes": 2, "Find checkpoint": 2}  # how often each asks where every node answers


class QuickNodes(JobCluster):
    """Every node answers while its command is being sent, and never again."""

    def __init__(self) -> None:
        super().__init__(policy=WITH_FABRIC, nodes=3, checkpoints={"directory": "/mnt/llama"})
        self.happenings = [finishes]
        commands: Any = self.ports.commands
        commands.diagnose = self._answered(commands.diagnose, super()._nodes_answer)
        self.ports = replace(
            self.ports,
            try_way=self._answered(self.ports.try_way, lambda _: JobCluster._ways_answer(self)),
            find_checkpoint=self._answered(self.ports.find_checkpoint, lambda _: JobCluster._somebody_looks(self)),
        )

    def _answered(self, send: Callable[..., str], answer: Callable[[Any], None]) -> Callable[..., str]:
        def sends(*given: Any, **named: Any) -> str:
            command_id = send(*given, **named)
            answer(self.asks)
            return command_id

        return sends

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
