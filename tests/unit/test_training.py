"""How a run trains on a node, as the text of a heartbeat: what the agent writes is what the control plane reads."""

import math
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeheal.contract.training import SLOWING_FAULTS, TEXT_CHARACTERS, NodeTraining, read_training, write_training
from nodeheal.contract.vocabulary import Verdict
from nodeheal.domain.faults.catalog import catalog

WHOLE = st.integers(0, 10**18 - 1)
SHORT = st.integers(0, 9_999).map(lambda number: number / 100)  # a heartbeat has four digits
BY_FIELD: dict[str, st.SearchStrategy[Any]] = {
    "step": WHOLE,
    "idle_seconds": SHORT,
    "saved_seconds": SHORT,
    "slowed_by": st.sampled_from(sorted(SLOWING_FAULTS)),
    "pause": st.from_regex(r"[a-z]{1,16}", fullmatch=True),
    "loss": SHORT | SHORT.map(lambda loss: -loss) | st.just(math.nan),
    "usual_loss": SHORT.map(lambda loss: -loss),
    **dict.fromkeys(("slowest_rank", "good_step", "saved_step", "waiting_ranks", "working_rank"), WHOLE),
}
FIELDS = [field.name for field in fields(NodeTraining) if field.name not in {"run", "step"}]
TRAININGS = st.builds(
    NodeTraining,
    run=st.from_regex(r"[a-z0-9-]{1,63}/[0-9]{1,9}", fullmatch=True),
    step=WHOLE,
    **{name: st.none() | BY_FIELD.get(name, SHORT) for name in FIELDS},
)


@given(st.lists(TRAININGS, max_size=3, unique_by=lambda training: training.run))
def test_what_is_written_is_read_and_what_has_no_room_is_left_out_from_the_end(trainings: list[NodeTraining]) -> None:
    text = write_training(trainings)

    read = list(read_training(text).values())
    assert len(text) <= TEXT_CHARACTERS
    assert repr(read) == repr(trainings[: len(read)]), "by repr: not a number equals no other"
    assert len(write_training(trainings[: len(read) + 1])) == len(text), "one more has no room"


def test_a_run_has_room_with_every_value() -> None:
    whole = ("slowest_rank", "good_step", "saved_step", "waiting_ranks", "working_rank")
    values = dict.fromkeys(whole, 123456789) | {"pause": "p" * 16, "slowed_by": max(SLOWING_FAULTS, key=len)}
    largest = NodeTraining("x" * 63 + "/123456789", 123_456_789, **dict.fromkeys(FIELDS, 1.234e-05) | values)  # type: ignore[arg-type]

    assert write_training([largest])


def test_an_older_control_plane_reads_the_steps() -> None:
    assert write_training([NodeTraining("llama/2", 2037), NodeTraining("eval/7", 3)]) == "llama/2=2037,eval/7=3"


def test_a_name_of_a_pause_becomes_one_word() -> None:
    text = write_training([NodeTraining("llama/2", 1, pause="Saving, then;more=" + "x" * 20)])

    assert read_training(text)["llama/2"].pause == "savingthenmorexx"


@pytest.mark.parametrize(
    "text",
    ["", "x", "llama/2=-5", "llama/2=1e9", "LLAMA/2=5", "llama/2=" + "1" * 19, "=" * 10_000, "llama/2 =5", ";t=1.0"],
)
def test_what_has_not_the_form_is_no_training(text: str) -> None:
    assert read_training(text) == {}


@pytest.mark.parametrize(
    "text",
    [
        *("t=x", "t=", "t", "t=-1", "t=nan", "t=1e12", "n=1.5", "n=-1", "n=" + "1" * 19, "p=A", "p=", "p=" + "a" * 17),
        *("s=inf", "us=-1", "ul=nan", "zz=5", "run=5", "step=9", "=", "l=x"),
    ],
)
def test_a_value_that_has_not_its_form_is_left_out(text: str) -> None:
    assert read_training(f"llama/2=5;{text};sr=8") == {"llama/2": replace(NodeTraining("llama/2", 5), slowest_rank=8)}


@pytest.mark.parametrize("loss", ["nan", "inf", "-inf", "1e999"])
def test_a_loss_that_is_not_finite_is_no_number(loss: str) -> None:
    read = read_training(f"llama/2=5;l={loss}")["llama/2"].loss

    assert read is not None
    assert math.isnan(read)


def test_a_loss_may_be_negative() -> None:
    assert read_training("llama/2=5;l=-1.5;ul=-2")["llama/2"] == NodeTraining("llama/2", 5, loss=-1.5, usual_loss=-2.0)


def test_no_more_is_read_than_a_heartbeat_has() -> None:
    assert read_training("x" * TEXT_CHARACTERS + ",llama/2=5") == {}


@given(st.text(alphabet="abl/=;,.0159-nte", max_size=80))
def test_no_text_breaks_the_reader(text: str) -> None:
    read_training(text)


def test_a_fault_that_does_not_slow_a_node_is_none() -> None:
    assert read_training("llama/2=1;b=xid/79")["llama/2"].slowed_by is None


@pytest.mark.parametrize("key", sorted(SLOWING_FAULTS))
def test_what_slows_a_node_is_a_fault_with_which_it_goes_on(key: str) -> None:
    [fault] = [row for row in catalog().values() if row.key == key]

    assert fault.verdict is Verdict.DEGRADED
