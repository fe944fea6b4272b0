"""The walker and the emulator tell one story: what tests/emulated plays with real agents under the deployed workflow,
the walker plays over the twins in milliseconds, and both go the same path, with the same outcome of each step, to the
same end.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import NodeState, Outcome, Verdict
from nodeheal.domain.fleet.machine import Machine
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.domain.policy.policy import RecoveryPolicy, parse_policy
from nodeheal.domain.recovery.approval_links import Answer, Question
from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.services.operators.answer_approval import answer_approval
from nodeheal.services.operators.operator_guardrails import pause_pool, reset_breaker
from nodeheal.services.operators.release_node import release_node
from sandbox.report import results_of
from sandbox.stories import STORIES
from stacks.settings import REPOSITORY
from tests.support.builders import node, scheduler_in, xid
from tests.support.fake_cluster import BROKEN, PEER, FakeCluster, crowd
from tests.support.fuse import Fuse
from tests.support.sandbox_stories import PATHS, RESULTS, SIDE_BY_SIDE, in_its_turn, outcomes
from tests.support.walker import Walk, steps
from tests.workflows.breaking_world import BreakingWorld
from tests.workflows.stories import TEMPLATE

DOCUMENT = json.loads((REPOSITORY / "sandbox" / "policy.json").read_text("utf-8"))
HOLDER = "mi-0dddddddddddddddd"
MADE, GROUP = "i-0eeeeeeeeeeeeeeee", "trainers"
GROUPED = replace(TEMPLATE, group=GROUP)
Prepare = Callable[[FakeCluster], object]
Play = Callable[[RecoveryPolicy], FakeCluster]


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
    cluster.ports.nodes.save(node(HOLDER, state=NodeState.ISOLATED))
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


def unmanaged_tasks_move_in(cluster: FakeCluster) -> None:
    for number, may_stop in enumerate((True, False)):
        unmanaged_task = UnmanagedTask(f"task/{number}", "notebook:1", may_be_stopped=may_stop)
        scheduler_in(cluster.ports).unmanaged[unmanaged_task.task_id] = (BROKEN, unmanaged_task)


def moves_to_another_host(cluster: BreakingWorld) -> None:
    """It passes its diagnostics there only."""
    answers = cluster._diagnosed

    def diagnosed(request: StepRequest) -> None:
        cluster.diagnoses[BROKEN] = Verdict.OK if cluster.node().boot_id == "boot-3" else Verdict.FAILED
        answers(request)

    cluster._diagnosed = diagnosed  # type: ignore[method-assign]


def group_makes_one(cluster: BreakingWorld) -> None:
    machines: Any = cluster.plain.machines
    machines.groups.add(GROUP)

    def launches(_: StepRequest) -> None:
        if machines.given_back and MADE not in machines.machines:
            cluster.clock.advance(60)
            machines.machines[MADE] = replace(GROUPED, machine_id=MADE, launched_at=cluster.clock())
            cluster._comes_up(MADE, "boot-1")

    cluster.on_replace = launches


def wants_reset(cluster: FakeCluster) -> None:
    cluster.fault = {"subcode": "GPU_RESET", "component": "0000:b9:00.0"}  # type: ignore[attr-defined]


def reset_fails(cluster: FakeCluster) -> None:
    wants_reset(cluster)
    cluster.resets = Outcome.FAILED


def nothing_to_be_had(cluster: BreakingWorld) -> None:
    cluster.plain.machines.is_full = True  # type: ignore[attr-defined]
    cluster.on_wait = lambda: None


def on_ec2(prepare: Callable[[BreakingWorld], object], machine: Machine = TEMPLATE) -> Play:
    """No spare stands by, and nodes are machines that others can be made like."""

    def play(policy: RecoveryPolicy) -> FakeCluster:
        world = BreakingWorld(Fuse(), policy, spare=False, machine=machine)
        world.on_wait = lambda: None
        prepare(world)
        return world

    return play


def on_premises(prepare: Prepare) -> Play:
    """Hybrid nodes, one of them a spare."""

    def play(policy: RecoveryPolicy) -> FakeCluster:
        cluster = FakeCluster(policy)
        cluster.on_wait = lambda: None  # the job trains on
        prepare(cluster)
        return cluster

    return play


PLAYED: dict[str, Play] = {
    "approval-given": on_premises(answers(Answer.approve)),
    "approval-ignored": on_premises(lambda _: None),
    "approval-refused": on_premises(answers(Answer.refuse)),
    "breaker-open": on_premises(three_fail),
    "budget-full": on_premises(budget_is_full),
    "fixed-by-reboot": on_premises(lambda _: None),
    "fixed-by-replacement": on_premises(persists),
    "fixed-by-stop-start": on_ec2(moves_to_another_host),
    "gpu-reset": on_premises(wants_reset),
    "gpu-reset-refused": on_premises(reset_fails),
    "never-returns": on_premises(stays_down),
    "no-capacity": on_ec2(nothing_to_be_had),
    "paused": on_premises(lambda cluster: pause_pool("demo", 3_600, "a new driver", cluster.ports)),
    "replaced-by-group": on_ec2(group_makes_one, GROUPED),
    "replaced-from-template": on_ec2(lambda _: None),
    "stale-event": on_premises(lambda _: None),
    "tasks-of-others": on_premises(unmanaged_tasks_move_in),
    "two-faults": on_premises(reports_another),
}


ENDS = "How did it end?"  # a choice, and the emulator's path has no choices


def without_choices(walked: Walk) -> list[str]:
    return [state for state in steps(walked) if state != ENDS]


def test_every_story_is_played() -> None:
    """Apart from those whose fault is no XID: after its report dcgm-policy goes the path of fixed-by-reboot, and a run
    that hangs, or whose loss is no number, that of test_hangs.py.
    """
    assert {*PLAYED, "two-nodes", "dcgm-policy", "hung-collective", "loss-diverged"} == STORIES.keys()


@pytest.mark.parametrize("name", PLAYED)
def test_the_walker_goes_the_path_of_the_emulator_to_its_end(name: str) -> None:
    script = STORIES[name].script
    cluster = PLAYED[name](policy_of(script.pool))

    walked = cluster.reports(xid(int(script.code), **getattr(cluster, "fault", {})))

    seen = without_choices(walked)
    path = [state for state, before in zip(seen, ["", *seen], strict=False) if state != before]
    waits = "Wait for condition" in PATHS[name]
    history = cluster.ports.incidents.history(cluster.incident_id)
    assert [state for state in path if waits or state != "Wait for condition"] == PATHS[name]
    assert outcomes(results_of(history), waits=waits) == RESULTS[name]
    assert history.incident.ending is script.expected.ending
    assert (len(cluster.job_nodes) == 2) == script.expected.finishes


def test_two_nodes_that_fail_together_are_healed_as_in_the_emulator_whichever_goes_first() -> None:
    """The other one has the slot; this one waits for its turn, and the other's whole recovery is walked meanwhile."""
    script = STORIES["two-nodes"].script
    cluster = FakeCluster(policy_of(script.pool))
    other = xid(int(script.code), node_id=PEER, instance_id=PEER, event_id="other")
    cluster.before_walk = [other]
    cluster.ports.pools.claim("demo", PEER, 1)
    walk_of = {"incident_id": incident_id_of(other)}
    cluster.on_wait = once(lambda: cluster._walk("recover_node", walk_of, cluster._answers()))

    cluster.reports(xid(int(script.code)))

    names_of = [incident_id_of(other), cluster.incident_id]  # in the order in which they ended
    histories = [cluster.ports.incidents.history(name) for name in names_of]
    paths = [in_its_turn(without_choices(walk)) for walk in cluster.walked if "Open incident" in walk.path]
    results = [in_its_turn(results_of(history)) for history in histories]
    assert sorted(zip(paths, results, strict=True)) == SIDE_BY_SIDE
    assert {history.incident.ending for history in histories} == {script.expected.ending}
    assert cluster.job_nodes == [BROKEN, PEER]
