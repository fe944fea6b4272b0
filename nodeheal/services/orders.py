"""Parts of one question to the nodes of a gang: each node answers by itself, and the last answer resumes the job.

The question is a wait of the job's workflow; every part is a wait of its own without a token, under the name that its
node is given and answers with. The part's `incident_id` is the question's key.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from nodeheal.contract.results import StepResult
from nodeheal.contract.vocabulary import Outcome
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.jobs.job import CheckAnswer
from nodeheal.ports import Ports
from nodeheal.ports.storage import Wait
from nodeheal.services.request_ids import named_at_random, request_id_of_wait, wait_for_answer
from nodeheal.services.steps import forget, no_diagnosis_yet, resume_if_complete

REFUSED = "the node refused the command or could not run it"


@dataclass(frozen=True)
class Orders:
    """The orders of one sort of question: the kinds of its wait, of its parts, and of the commands behind them."""

    question: str
    order: str
    command: str

    def ask(self, wait: Wait, ports: Ports) -> frozenset[str]:
        """Store the question; its parts that nobody has answered yet."""
        ports.waits.save(wait)
        answered = {answer.request_id for answer in ports.job_notes.answers(wait.incident_id)}
        return wait.outstanding - answered

    def give(self, wait: Wait, order_id: str, node: Node, send: Callable[[str], str], ports: Ports) -> None:
        """Store the node's part, then send it under a random request id.

        A repeated call sends nothing again that provably was sent.
        """
        known = ports.waits.get(self.order, order_id)
        if known is not None and known.command_id:
            return
        order = named_at_random(self._part(wait, order_id, node, ports), known)
        ports.waits.save(order)
        try:
            command_id = send(request_id_of_wait(order))
        except NotFound as gone:
            self.take(order, Outcome.UNKNOWN, str(gone), ports)
            return
        name_command(order, self.command, command_id, ports)

    def cannot_be_given(self, wait: Wait, order_id: str, node: Node, why: str, ports: Ports) -> None:
        """Nothing is sent to the node: that is its part's answer."""
        self.take(self._part(wait, order_id, node, ports), Outcome.UNKNOWN, why, ports)

    def find(self, request_id: str, node_id: str, boot_id: str, ports: Ports) -> Wait | None:
        """The part that waits for this answer; None for any other node's, or one of another boot."""
        order = wait_for_answer(self.order, request_id, ports)
        return order if order is not None and (_whose(order), order.boot_id) == (node_id, boot_id) else None

    def take_refusal(self, command_id: str, ports: Ports, why: str = REFUSED) -> None:
        """A node refused the command or could not run it: no answer will come."""
        named = ports.waits.get(self.command, command_id)
        order = ports.waits.get(*named.twin) if named is not None and named.twin is not None else None
        if order is not None:
            self.take(order, Outcome.UNKNOWN, why, ports)

    def end(self, key: str, ports: Ports) -> None:
        """Who has not answered the question until now is not waited for any more."""
        wait = ports.waits.get(self.question, key)
        if wait is None:
            return
        for order_id in sorted(wait.outstanding):
            order = ports.waits.get(self.order, order_id)
            if order is not None:
                forget(ports, order)
        ports.waits.drop(wait)

    def strike_what_came_meanwhile(self, wait: Wait, ports: Ports) -> None:
        """An answer that came before the wait was stored (anew, by a repeated call) has struck nothing: do it now."""
        left: Wait | None = wait
        for answer in ports.job_notes.answers(wait.incident_id):
            if answer.request_id in wait.outstanding:
                left = ports.waits.strike(wait.kind, wait.key, answer.request_id)
        resume_if_complete(ports, left)

    def take(self, order: Wait, outcome: Outcome, reason: str, ports: Ports) -> None:
        """A node has answered its part: note it, and resume if it was the last. A question that is over takes none."""
        wait = ports.waits.get(self.question, order.incident_id)
        if wait is not None:
            answer = CheckAnswer(order.key, _whose(order), order.boot_id, outcome, reason, ports.clock())
            ports.job_notes.note_answer(wait.incident_id, answer)
            resume_if_complete(ports, ports.waits.strike(wait.kind, wait.key, order.key))
        forget(ports, order)

    def _part(self, wait: Wait, order_id: str, node: Node, ports: Ports) -> Wait:
        return replace(
            wait,
            kind=self.order,
            key=order_id,
            token="",
            incident_id=wait.key,
            boot_id=node.boot_id,
            outstanding=frozenset(),
            result_json=no_diagnosis_yet(node, ports).model_dump_json(),
        )


def name_command(wait: Wait, kind: str, command_id: str, ports: Ports, *, result_json: str | None = None) -> None:
    """Have the command's id lead to the stored wait, by a twin of this kind: the command's own failure is told by it.

    An answer may be quicker than this. Then nothing is waited for any more, and nothing may be left of it.
    """
    if not ports.waits.save(replace(wait, command_id=command_id, twin=(kind, command_id)), renews=True):
        return
    twin = replace(wait, kind=kind, key=command_id, command_id="", twin=(wait.kind, wait.key), outstanding=frozenset())
    ports.waits.save(twin if result_json is None else replace(twin, result_json=result_json))
    if ports.waits.get(wait.kind, wait.key) is None:
        ports.waits.drop(twin)


def _whose(order: Wait) -> str:
    return StepResult.model_validate_json(order.result_json).node_id
