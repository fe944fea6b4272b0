"""`nodeheal replay`: past events through a policy, with nothing touched."""

import json
import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from nodeheal.adapters.memory.ports import memory_ports
from nodeheal.cli.main import app
from nodeheal.contract import names
from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.vocabulary import Family, NodeState, Verdict
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Budget, Mode, PoolPolicy
from nodeheal.services.operators.replay import Pace, Past, Replay, ReplayClock, in_order
from tests.support.builders import ACT, NOW, xid
from tests.support.observations import later
from tests.support.replays import HOUR, A, B, C, fault, policy, replayed, steps

__all__ = ["policy"]  # fixtures


def no_gpus(seconds: float, **changes: Any) -> Past:
    """The node sees no accelerator."""
    return fault(79, A, seconds, family=Family.nvml, code="NO_DEVICES", component=None, **changes)


# What is decided -----------------------------------------------------------------------------------------------------


def test_a_fault_is_walked_to_its_end_as_if_each_step_worked() -> None:
    seen = replayed(fault(79, A, 0, "llama"))

    assert steps(seen) == ["ISOLATE", "REBOOT", "DIAGNOSE", "RETURN", "RESTART_WORKLOAD", "CLOSE"]
    assert seen.actions == {"REBOOT": 1, "RESTART_WORKLOAD": 1}
    assert seen.endings == {"RECOVERED": 1}
    assert seen.nodes_touched == {A}
    assert {one.at for one in seen.decisions} == {NOW}


def test_the_jobs_own_fault_restarts_the_job_once_for_each_time_that_it_comes() -> None:
    assert steps(replayed(fault(31, A, 0, "llama"))) == ["RESTART_WORKLOAD", "CLOSE"]
    assert replayed(fault(31, A, 0, "llama"), fault(31, A, 5, "llama")).actions == {"RESTART_WORKLOAD": 1}
    assert replayed(fault(31, A, 0, "llama"), fault(31, A, HOUR, "llama")).actions == {"RESTART_WORKLOAD": 2}


def test_a_fault_without_a_job_restarts_none() -> None:
    assert "RESTART_WORKLOAD" not in steps(replayed(fault(79)))


def test_a_swap_brings_a_spare_and_leaves_the_broken_node_to_a_human() -> None:
    seen = replayed(fault(74, A, 0, "llama"))

    assert steps(seen) == ["ISOLATE", "FREEZE_EVIDENCE", "REPLACE", "DIAGNOSE", "RESTART_WORKLOAD", "ESCALATE"]
    assert steps(seen, f"spare-for-{A}") == ["DIAGNOSE"]
    assert seen.endings == {"HANDED_TO_A_HUMAN": 1}
    assert seen.nodes_touched == {A}


def test_a_pool_that_is_only_observed_is_not_touched() -> None:
    seen = replayed(fault(79), fault(74, B), fault(63, C), policy=RecoveryPolicy())

    assert seen.endings == {"OBSERVED_ONLY": 3}
    assert seen.nodes_touched == set()
    assert seen.actions == {}


def test_what_the_budget_refuses_is_told_with_its_reason() -> None:
    seen = replayed(fault(79), fault(74, B, 1))

    [refused] = seen.budget_refused
    assert (refused.node_id, refused.step, refused.reason) == (B, "ISOLATE", "1 of 1 nodes were out of service")
    assert seen.nodes_touched == {A, B}  # its turn came when A was back


def test_a_repaired_node_gives_its_slot_back_after_a_while() -> None:
    pace = Pace(repair_seconds=900)

    seen = [replayed(fault(79), fault(74, B, seconds), pace=pace) for seconds in (899, 900)]

    assert [len(one.budget_refused) for one in seen] == [1, 0]


def test_a_node_that_is_left_to_a_human_keeps_its_slot_until_somebody_has_come() -> None:
    pace = Pace(human_seconds=8 * HOUR)

    seen = [replayed(fault(74), fault(79, B, seconds), pace=pace) for seconds in (8 * HOUR - 1, 8 * HOUR)]

    assert [len(one.budget_refused) for one in seen] == [1, 0]


def test_a_node_that_a_human_got_is_not_given_back_by_the_repair_before() -> None:
    relapse = fault(79, A, 600, event_id="relapse", boot_id="boot-2")  # ladder: a swap, then a human

    seen = replayed(fault(79), relapse, fault(74, B, 1_000))

    assert steps(seen, A)[-1] == "ESCALATE"
    assert [one.node_id for one in seen.budget_refused] == [B]


def test_an_attempt_that_the_limits_refuse_is_told() -> None:
    once = {action: limit.model_copy(update={"limit": 1}) for action, limit in ACT.limits.items()}
    policy = ACT.model_copy(update={"limits": once})

    seen = replayed(fault(31, A, 0, "llama"), fault(31, A, 2 * HOUR, "llama"), policy=policy)

    [refused] = seen.attempts_refused
    assert (refused.step, refused.at) == ("RESTART_WORKLOAD", NOW + timedelta(hours=2))
    assert seen.actions["RESTART_WORKLOAD"] == 1


def test_the_same_event_twice_is_one() -> None:
    seen = replayed(fault(79), fault(79))

    assert seen.ingested == {"OPENED": 1, "DUPLICATE": 1}
    assert seen.endings == {"RECOVERED": 1}


def test_a_heartbeat_is_seen_and_decides_nothing() -> None:
    seen = replayed(fault(0, family=Family.heartbeat, code="ALIVE", verdict=Verdict.OK))

    assert (seen.ingested, seen.decisions) == ({"SEEN": 1}, [])


# Waiting -------------------------------------------------------------------------------------------------------------


def test_a_job_that_goes_on_is_waited_for_further() -> None:
    seen = replayed(fault(63, A, 0, "llama"), fault(92, A, HOUR, "llama"))

    assert steps(seen) == ["WAIT", "WAIT"]


def test_a_wait_ends_at_its_deadline_although_nothing_more_comes_from_the_node() -> None:
    day = 24 * HOUR
    before = replayed(fault(63, A, 0, "llama"), fault(45, B, 7 * day - 1))
    after = replayed(fault(63, A, 0, "llama"), fault(45, B, 8 * day))

    assert len(before.still_waiting) == 1
    ended = [one for one in after.decisions if one.node_id == A][-1]
    assert (ended.step, ended.at) == ("ESCALATE", NOW + timedelta(days=7))
    assert after.still_waiting == {}


def test_silence_after_a_boot_is_not_health_in_a_replay_either() -> None:
    seen = replayed(no_gpus(0), fault(45, B, HOUR))

    assert steps(seen, A) == ["WAIT", "ESCALATE"]


def test_good_news_ends_a_wait() -> None:
    seen = replayed(no_gpus(0), no_gpus(301, verdict=Verdict.OK))

    assert steps(seen, A) == ["WAIT", "CLOSE"]
    assert seen.endings == {"OBSERVED_ONLY": 1}


# Order ---------------------------------------------------------------------------------------------------------------

MOMENTS = st.builds(
    lambda code, node_id, seconds, job, boot: fault(
        code, node_id, seconds, job, boot_id=boot, event_id=f"{code}-{seconds}-{boot}"
    ),
    code=st.sampled_from([13, 31, 45, 48, 63, 64, 74, 79, 94, 95, 119, 555]),
    node_id=st.sampled_from([A, B, C]),
    seconds=st.sampled_from([0, 1, 299, 901, HOUR, 9 * HOUR, 8 * 24 * HOUR]),
    job=st.sampled_from([None, "llama", "bert"]),
    boot=st.sampled_from(["boot-1", "boot-2"]),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(MOMENTS, max_size=12, unique_by=lambda p: (p.event.node_id, p.event.event_id)), st.integers())
def test_any_record_is_replayed_and_its_order_does_not_matter(past: list[Past], seed: int) -> None:
    shuffled = random.Random(seed).sample(past, len(past))

    assert replayed(*shuffled) == replayed(*past)


@settings(deadline=None, max_examples=40)
@given(st.lists(MOMENTS, max_size=12))
def test_no_more_nodes_are_ever_out_of_service_than_the_budget_lets(past: list[Past]) -> None:
    clock = ReplayClock()
    ports = memory_ports(clock)
    budget = Budget(max_nodes=1, max_percent=100)
    world = Replay(RecoveryPolicy(default_pool=PoolPolicy(mode=Mode.act, budget=budget)), ports, clock)

    for one in in_order(past):
        world.take(one)
        out = [ports.nodes.get(holder) for holder in ports.pools.holders("demo")]
        assert sum(node is not None and node.state is not NodeState.QUARANTINED for node in out) <= 1
        assert len(out) <= budget.most_out(1) == 2


# The command ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path, policy: Path) -> Any:
    """Replays lines."""

    def replay(lines: list[object], *words: str, by: Path = policy) -> Result:
        record = tmp_path / "events.jsonl"
        record.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
        return CliRunner().invoke(app, ["replay", str(record), "--policy", str(by), *words])

    return replay


def plain(event: HealthEvent) -> dict[str, Any]:
    return event.model_dump(mode="json")


ENVELOPES: dict[str, Callable[[HealthEvent], dict[str, Any]]] = {
    "raw": lambda event: plain(event),
    "raw with the job": lambda event: {**plain(event), "job_id": "llama"},
    "EventBridge's": lambda event: {
        "source": "nodeheal",
        "detail-type": names.NODE_HEALTH_REPORTED,
        "detail": plain(event),
    },
    "ours": lambda event: {"event": plain(event), "job_id": "llama"},
    "ours without a job": lambda event: {"event": plain(event), "job_id": None},
}


def test_an_archived_event_of_another_kind_is_passed_over(run: Any) -> None:
    booted = {"detail-type": names.NODE_BOOTED, "detail": {"node_id": A}}

    assert json.loads(run([booted, plain(xid(79))], "--json").output)["events"] == 1


def test_the_drivers_word_within_the_same_second_counts_in_either_order() -> None:
    link = fault(74, A, 0, "llama")
    word = fault(154, A, 0, "llama", subcode="NODE_REBOOT")

    assert steps(replayed(link, word)) == steps(replayed(word, link))
    assert "REBOOT" in steps(replayed(link, word))


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_an_event_is_read_in_every_envelope(run: Any, envelope: str) -> None:
    answer = json.loads(run([ENVELOPES[envelope](xid(79))], "--json").output)

    assert answer["events"] == 1
    assert answer["endings"] == {"RECOVERED": 1}
    has_job = '"llama"' in json.dumps(ENVELOPES[envelope](xid(79)))
    assert answer["actions"] == ({"REBOOT": 1, "RESTART_WORKLOAD": 1} if has_job else {"REBOOT": 1})


def test_the_answer_for_programs_has_every_decision(run: Any) -> None:
    answer = json.loads(run([plain(fault(79).event), plain(fault(74, B, 1).event)], "--json").output)

    assert answer["policy_version"] == ACT.version
    assert answer["ingested"] == {"OPENED": 2}
    assert answer["nodes_touched"] == [A, B]  # B when A was back
    assert answer["budget_refused"][0]["node_id"] == B
    assert (answer["attempts_refused"], answer["still_waiting"]) == ([], [])
    first = answer["decisions"][0]
    assert (first["step"], first["node_id"], first["outcome"]) == ("ISOLATE", A, "DONE")
    assert first["at"] == "2026-03-01T03:00:00+00:00"
    assert "GPU has fallen off the bus" in first["fault"]


def test_the_answer_for_people_tells_decisions_and_counts(run: Any) -> None:
    said = run([plain(fault(79).event), plain(fault(74, B, 1).event)]).output

    assert said.startswith(f"2 events, by policy {ACT.version}\n")
    assert f"  2026-03-01 03:00:00  {A}  ISOLATE          DONE      XID 79" in said
    assert "actions           1 REBOOT, 1 REPLACE\n" in said
    assert f"nodes touched     2: {A}, {B}\n" in said
    assert "budget refused    1\n" in said
    assert "still waiting     0\n" in said


def test_a_long_answer_for_people_is_cut_and_says_so(run: Any) -> None:
    said = run([plain(fault(555, f"mi-{n:017d}", n).event) for n in range(50)]).output

    assert "  ... and 10 more decisions; --json has them all\n" in said


def test_a_policy_that_observes_can_be_asked_what_it_would_do(run: Any, tmp_path: Path) -> None:
    observing = tmp_path / "observing.json"
    observing.write_text("{}")

    answers = [json.loads(run([plain(xid(79))], "--json", *more, by=observing).output) for more in ([], ["--acting"])]

    assert [answer["nodes_touched"] for answer in answers] == [[], [A]]
    assert [answer["endings"] for answer in answers] == [{"OBSERVED_ONLY": 1}, {"RECOVERED": 1}]


def test_lines_in_any_order_give_the_same_answer(run: Any) -> None:
    lines: list[object] = [plain(fault(code, node_id, 7 * n).event) for n, (code, node_id) in enumerate(_MIXED)]

    assert run(lines, "--json").output == run(lines[::-1], "--json").output


_MIXED = [(79, A), (74, B), (63, C), (45, A), (31, B), (555, C)]


def test_an_empty_record_has_nothing_to_tell(run: Any) -> None:
    result = run(["", "   "])

    assert result.exit_code == 0
    assert result.output.startswith("0 events, by policy ")
    assert "actions           none\n" in result.output
    assert "nodes touched     0: -\n" in result.output


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "not JSON: "),
        ("[1]", "not a JSON object"),
        ("null", "not a JSON object"),
        ("[" * 100_000, "not JSON: "),
        ('{"event": {"shoe_size": 44}}', "schema_version: is missing"),
        ({**plain(xid(79)), "verdict": "MAYBE"}, 'verdict: "MAYBE" is not known; give OK, '),
        ({**plain(xid(79)), "observed_at": "2026-03-01T03:00:00"}, "observed_at: "),
        ({**plain(xid(79)), "shoe_size": 44}, "shoe_size: there is no such field"),
    ],
)
def test_a_line_that_is_no_event_is_named_by_its_number(run: Any, tmp_path: Path, line: object, told: str) -> None:
    result = run([plain(xid(79)), "", line])

    assert result.exit_code == 2
    assert result.output.startswith(f"{tmp_path / 'events.jsonl'}:3: {told}")


def test_a_line_that_is_not_text_is_named_by_its_number(tmp_path: Path, policy: Path) -> None:
    record = tmp_path / "events.jsonl"
    record.write_bytes(b'{"a": "\xe9"}\n')

    result = CliRunner().invoke(app, ["replay", str(record), "--policy", str(policy)])

    assert result.exit_code == 2
    assert result.output.startswith(f"{record}:1: not JSON: ")


def test_files_that_are_not_there_are_named(run: Any, tmp_path: Path, policy: Path) -> None:
    missing = tmp_path / "missing"

    results = [
        run([], by=missing),
        CliRunner().invoke(app, ["replay", str(missing), "--policy", str(policy)]),
    ]

    assert [result.output for result in results] == [f"{missing}: No such file or directory\n"] * 2
    assert [result.exit_code for result in results] == [2, 2]


DAY = 86_400


def test_another_job_on_the_node_means_that_the_one_before_has_ended() -> None:
    seen = replayed(fault(63, A, 0, "llama"), fault(63, A, HOUR, "bert", component="0000:ba:00.0"))

    assert steps(seen)[:3] == ["WAIT", "ISOLATE", "REBOOT"]


def test_a_line_that_names_no_job_leaves_the_one_that_was_known() -> None:
    seen = replayed(fault(63, A, 0, "llama"), fault(63, A, HOUR, None, component="0000:ba:00.0"))

    assert steps(seen) == ["WAIT", "WAIT"]


def test_waits_end_in_the_order_of_their_deadlines() -> None:
    week = 7 * DAY
    seen = replayed(fault(63, B, 0, "bert"), fault(63, A, 60, "llama"), fault(45, C, week + 120))

    ended = [one for one in seen.decisions if one.step == "ESCALATE"]
    assert [one.node_id for one in ended] == [B, A]
    assert [one.at for one in ended] == [later(week), later(week + 60)]


def test_a_wait_ends_before_what_comes_in_the_moment_of_its_deadline() -> None:
    seen = replayed(fault(63, A, 0, "llama"), fault(79, A, 7 * DAY, "llama"))

    assert steps(seen)[:2] == ["WAIT", "ESCALATE"]


def test_a_node_that_a_human_gave_back_opens_a_new_incident() -> None:
    given_back = 8 * HOUR
    seen = replayed(fault(74), fault(48, A, given_back - 1), fault(64, A, given_back))

    assert seen.ingested == {"OPENED": 2, "JOINED": 1}


REMAP = 63


@pytest.mark.parametrize(
    "quiet",
    [
        {"family": Family.heartbeat, "code": "alive", "verdict": Verdict.OK},
        {"family": Family.xid, "code": "63", "verdict": Verdict.DEGRADED},
    ],
    ids=["heartbeats", "the same line"],
)
def test_what_says_nothing_new_does_not_end_a_replayed_wait(quiet: dict[str, Any]) -> None:
    more = [fault(0, A, 60.0 * n, "llama", **quiet) for n in range(1, 40)]

    seen = replayed(fault(REMAP, A, 0, "llama", verdict=Verdict.DEGRADED), *more)

    assert steps(seen) == ["WAIT"]
    assert seen.endings == {}
