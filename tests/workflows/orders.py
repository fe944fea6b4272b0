"""A world whose news arrive in an order that is given: late, early, twice, or after the deadline of whoever waits.

Only what cannot be is left out: nothing is told before it has happened, and a copy never comes before its original.
News that an order does not name arrive as soon as they are there.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any

from nodeheal.contract.steps import StepRequest
from nodeheal.domain.recovery.incident import Turn
from tests.support.builders import NOW, commands_in, scheduler_in, xid
from tests.support.fake_cluster import BROKEN, PEER
from tests.support.fuse import Fuse
from tests.support.walker import TIMEOUT
from tests.workflows.breaking_world import ACTS, BreakingWorld

Json = dict[str, Any]

FAULT, STALE, BOOT, PROOF = "fault", "stale", "boot", "proof"
STOP, PEERS_STOP, THE_END = "stop", "peer's stop", "the job's end"
AGAIN = " again"
# What cannot be told before that has been told: it is caused by it.
AFTER = {PROOF: BOOT}


@dataclass(frozen=True)
class Outcome:
    """How it ended, for the incident, for the nodes and for the job."""

    ends: tuple[str, ...]
    nodes: tuple[str, ...]
    job: tuple[str, ...]
    commands: tuple[tuple[str, str], ...]
    why: str = ""  # where a human has it


class OrderedWorld(BreakingWorld):
    """News wait until it is their turn. `is_eager`: they come before the workflow goes on, as many as may."""

    def __init__(self, order: Sequence[str], code: int, *, is_eager: bool, **said: Any) -> None:
        self._left, self._code, self._is_eager = list(order), code, is_eager
        self._named = frozenset(order)
        self._told: dict[str, Callable[[], object]] = {}  # how to tell it again
        self._known_to_stop: set[str] = set()  # a rank that went down with its node is told of, too
        self.timed_out: list[str] = []  # whose deadline has passed before the news came
        self._is_asked: StepRequest | None = None
        super().__init__(Fuse(writes_only=True), ACTS, **said)
        self.on_wait = self._news_of_the_end

    def play(self) -> Outcome:
        """The whole story."""
        while FAULT in self._left:
            self._tell(self._left.pop(0))
        if self._is_eager:
            self._go_on(lambda: False)
        self.walk_what_was_started()
        for name in [*self._left]:
            self._left.remove(name)
            if self._may_be(name):
                self._tell(name)
        why = {turn.decision.escalation for turn in self._turns() if turn.decision.escalation}
        self.wrong += self.faults()
        return Outcome(
            self.ends,
            tuple(f"{node.node_id} {node.state}" for node in self.plain.nodes.in_pool("demo")),
            tuple(self.job_nodes),
            tuple(self.commands),
            ", ".join(sorted(why)),
        )

    def _turns(self) -> list[Turn]:
        histories = (self.plain.incidents.history(name) for name in self.plain.workflows.started)  # type: ignore[attr-defined]
        return [turn for history in histories for turn in history.turns]

    def _waits(
        self, service: Any, react: Callable[[StepRequest], object], *more: Any
    ) -> Callable[[dict[str, Any]], Any]:
        def reacts(request: StepRequest) -> None:
            self._is_asked = request
            react(request)
            self._go_on(lambda: request.task_token in self.plain.workflows.resumed)  # type: ignore[attr-defined]

        waits = super()._waits(service, reacts, *more)

        def timed(arguments: Json) -> Any:
            answer = waits(arguments)
            if answer == TIMEOUT:
                self.timed_out.append(service.__name__)
            return answer

        return timed

    def _go_on(self, is_enough: Callable[[], bool]) -> None:
        """Tell what is next for as long as it has happened, and somebody waits for it, or nobody has to."""
        while self._left and self._may_be(self._left[0]) and (self._is_eager or not is_enough()):
            self._tell(self._left.pop(0))

    # Each of the news: whether it has happened, and how it is told.

    def _may_be(self, name: str) -> bool:
        match name:
            case _ if name.endswith(AGAIN):
                return name.removesuffix(AGAIN) in self._told
            case "boot":
                return self._seen_sent < len(self._orders)
            case "proof":
                return self._is_to_answer()
            case "stop":
                return bool(self._stopping(BROKEN))
            case "peer's stop":
                return bool(self._stopping(PEER))
            case _:
                return True

    def _tell(self, name: str) -> None:
        if name.endswith(AGAIN):
            self._told[name.removesuffix(AGAIN)]()
            return
        before = len(self._heard)
        self._happen(name)
        heard = self._heard[before:]
        self._told[name] = lambda: self._hear_again(heard)

    def _hear_again(self, heard: Sequence[tuple[Any, Any]]) -> None:
        for take, told in heard:
            if take is None:
                self._ingest(told)
            else:
                self._wakes(take, told)

    def _happen(self, name: str) -> None:
        match name:
            case "fault":
                self._ingest(xid(self._code))
            case "stale":
                at = NOW.replace(hour=0)
                self._ingest(xid(74, event_id="stale", boot_id="boot-0", observed_at=at))
            case "boot":
                self._seen_sent += 1
                self.takes_order(*self._orders[self._seen_sent - 1])
            case "proof":
                assert self._is_asked is not None
                super()._diagnosed(self._is_asked)
            case "the job's end":
                self._gang_finishes()
            case _:
                for task_id in self._stopping(BROKEN if name == STOP else PEER):
                    self._stops(task_id)

    def _stopping(self, name: str) -> list[str]:
        tasks = scheduler_in(self.plain).tasks
        asked = scheduler_in(self.plain).stopped
        return [i for i in asked if tasks[i].node_id == name and i not in self._known_to_stop]

    def _is_to_answer(self) -> bool:
        asked = [sent.node_id for sent in commands_in(self.plain).sent_of("run-diagnostics")]
        return len(asked) > self._answered and self._is_asked is not None and self._is_asked.decision.step == "DIAGNOSE"

    def _stops(self, task_id: str) -> None:
        self._known_to_stop.add(task_id)
        super()._stops(task_id)

    # What the order does not name happens at once.

    def _gang_stops(self, request: StepRequest) -> None:
        for name, node_id in ((STOP, BROKEN), (PEERS_STOP, PEER)):
            for task_id in self._stopping(node_id) if name not in self._left else ():
                self._stops(task_id)

    def _boots(self, request: StepRequest) -> None:
        if BOOT not in self._left:
            super()._boots(request)

    def _diagnosed(self, request: StepRequest) -> None:
        if PROOF not in self._left:
            super()._diagnosed(request)

    def _news_of_the_end(self) -> None:
        if THE_END not in self._named:
            self._gang_finishes()


def orders_of(names: Sequence[str], count: int) -> Iterator[tuple[str, ...]]:
    """Every order of so many of these that can be: the fault is always among them."""
    for chosen in combinations(names, count):
        if FAULT in chosen and all(AFTER.get(n, n.removesuffix(AGAIN)) in chosen for n in chosen):
            yield from filter(_can_be, permutations(chosen))


def _can_be(order: tuple[str, ...]) -> bool:
    """Nothing that the fault leads to comes before it; the rest as AFTER and AGAIN say."""
    at = {name: number for number, name in enumerate(order)}
    if any(at[name] < at[FAULT] for name in order if name not in (FAULT, STALE, THE_END, STALE + AGAIN)):
        return False
    causes = ((AFTER.get(name, name.removesuffix(AGAIN)), name) for name in order)
    return all(at[cause] <= at[name] for cause, name in causes)
