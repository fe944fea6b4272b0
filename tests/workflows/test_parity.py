"""The walker and the emulator tell one story: what tests/emulated plays with real agents under the deployed workflow,
the walker plays over the twins in milliseconds, and both go the same path to the same end.

Not here are the stories about machines (groups, templates, stop and start) and about guests: FakeCluster has neither.
"""

import json
from collections.abc import Callable

import pytest

from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import NodeState, Verdict
from nodeheal.domain.approval import Answer, Question
from nodeheal.domain.policy import RecoveryPolicy, parse_policy
from nodeheal.services.answer_approval import answer_approval
from nodeheal.services.brakes import pause_pool, reset_breaker
from nodeheal.services.release_node import release_node
from sandbox.stories import STORIES
from stacks.settings import REPOSITORY
from tests.emulated.test_stories import PATHS
from tests.unit.builders import node, xid
from tests.workflows.fake_cluster import BROKEN, FakeCluster
from tests.workflows.test_brakes import crowd, steps

DOCUMENT = json.loads((REPOSITORY / "sandbox" / "policy.json").read_text("utf-8"))
HOLDER = "mi-0dddddddddddddddd"
Prepare = Callable[[FakeCluster], object]


def once(act: Callable[[], object]) -> Callable[[], object]:
    """The first time something is waited for."""
    left = [act]
    return lambda: left.pop()() if left else None


def policy_of(pool: str) -> RecoveryPolicy:
    """The policy of the sandbox, with the pool that FakeCluster's nodes are in as this one is."""
    as_there = DOCUMENT["pools"].get(pool, DOCUMENT["default_pool"])
    # There the two seconds in which a node proves itself are mostly over by then; here time stands still.
    pools = {**DOCUMENT["pools"], "demo": as_there}
    return parse_policy(json.dumps({**DOCUMENT, "pools": pools, "stable_seconds": 0}))


def persists(cluster: FakeCluster) -> None:
    cluster.diagnoses = {BROKEN: Verdict.FAILED}


def stays_down(cluster: FakeCluster) -> None:
    cluster.node_returns = False


def answers(answer: Answer) -> Prepare:
    def prepare(cluster: FakeCluster) -> None:
        def on_question(request: StepRequest) -> None:
            answer_approval(Question(request.incident_id, request.turn), answer, "ada", "", cluster.ports)

        cluster.on_question = on_question

    return prepare


def budget_is_full(cluster: FakeCluster) -> None:
    cluster.ports.nodes.save(node(HOLDER, state=NodeState.QUARANTINED))
    cluster.ports.pools.claim("demo", HOLDER, 1)
    cluster.on_wait = once(lambda: release_node(HOLDER, "the riser card is new", cluster.ports))


def three_fail(cluster: FakeCluster) -> None:
    cluster.before_walk = crowd(3)

    def reset() -> None:
        cluster.clock.advance(1)
        reset_breaker("demo", "the rack has power again", cluster.ports)

    cluster.on_wait = once(reset)


def reports_another(cluster: FakeCluster) -> None:
    cluster.before_walk = [xid(48, event_id="another")]


PLAYED: dict[str, Prepare] = {
    "approval-given": answers(Answer.approve),
    "approval-ignored": lambda _: None,
    "approval-refused": answers(Answer.refuse),
    "breaker-open": three_fail,
    "budget-full": budget_is_full,
    "fixed-by-reboot": lambda _: None,
    "fixed-by-replacement": persists,
    "never-returns": stays_down,
    "paused": lambda cluster: pause_pool("demo", 3_600, "a new driver", cluster.ports),
    "stale-event": lambda _: None,
    "two-faults": reports_another,
}
# Of two nodes nobody can say which goes first; the rest needs what FakeCluster has not.
NOT_PLAYED = {
    "fixed-by-stop-start",
    "no-capacity",
    "replaced-by-group",
    "replaced-from-template",
    "tasks-of-others",
    "two-nodes",
}


def test_every_story_is_played_or_said_not_to_be() -> None:
    assert PLAYED.keys() | NOT_PLAYED == STORIES.keys()


@pytest.mark.parametrize("name", PLAYED)
def test_the_walker_goes_the_path_of_the_emulator_to_its_end(name: str) -> None:
    script = STORIES[name].script
    cluster = FakeCluster(policy_of(script.pool))
    cluster.on_wait = lambda: None  # the job trains on
    PLAYED[name](cluster)

    walked = cluster.reports(xid(79))

    seen = steps(walked)
    path = [state for state, before in zip(seen, ["", *seen], strict=False) if state != before]
    waits = "Wait for news" in PATHS[name]
    assert [state for state in path if waits or state != "Wait for news"] == PATHS[name]
    incident = cluster.ports.incidents.history(cluster.incident_id).incident
    assert incident.ending is script.expected.ending
    assert (len(cluster.job_nodes) == 2) == script.expected.finishes
