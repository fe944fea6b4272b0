"""Whatever lies there, and whatever becomes of it meanwhile: an answer, in time, and never a traceback."""

import json
import os
import pickle
import resource
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodeheal.checkpoints import apart, search
from nodeheal.checkpoints.apart import list_apart, tell_apart
from nodeheal.checkpoints.found import DirectoryListing, listing_of
from nodeheal.checkpoints.place import why_not_plain
from nodeheal.checkpoints.search import JUDGED_AT_MOST, list_checkpoints
from nodeheal.contract.vocabulary import CheckpointFormat
from tests.support import checkpoint_trees as trees

AUTO = CheckpointFormat.auto
NAMES = [
    "latest_checkpointed_iteration.txt",
    "iter_0000001/metadata.json",
    "iter_0000001/.metadata",
    "iter_0000001/mp_rank_00/model_optim_rng.pt",
    "checkpoint-1/trainer_state.json",
    "checkpoint-1/model.safetensors",
    "checkpoint-1/model.safetensors.index.json",
    "checkpoint-1/optimizer.pt",
    "a.nemo",
    "b.ckpt",
    "tag_1/done",
    "tag_1/model/dp_rank_00_tp_rank_00_pp_rank_00.pt",
    "newest",
    "step-1/.metadata",
    "step-1/__0_0.distcp",
    "step-000001.npz",
    "step-000001.sha256",
    "model_1.pt",
]
MAGIC = [b"", b"PK\x03\x04", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", b"\x1f\x8b", b"\x80\x04", b"{", b"\xff" * 8]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.sampled_from(NAMES), st.tuples(st.sampled_from(MAGIC), st.binary(max_size=80)), min_size=1),
    st.sampled_from(list(CheckpointFormat)),
)
def test_any_bytes_are_an_answer(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, tuple[bytes, bytes]], wanted: CheckpointFormat
) -> None:
    root = tmp_path_factory.mktemp("any")
    for name, (start, rest) in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(start + rest)

    found = list_checkpoints(str(root), wanted)

    assert found.problem == ""
    assert listing_of(json.loads(json.dumps(found.as_json()))) == found


class Bomb:
    """A pickle that would leave a trace if anybody loaded it."""

    def __init__(self, trace: str) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.trace,)


def test_nothing_is_ever_unpickled(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    folder = trees.distributed_folder(tmp_path / "there" / "step-1")
    (folder / ".metadata").write_bytes(pickle.dumps([Bomb(str(trace)), "__0_0.distcp"]))

    assert list_checkpoints(str(tmp_path / "there")).checkpoints
    assert not trace.exists()


def test_a_link_out_of_the_directory_is_not_followed(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    trees.torch_save(inside, 1)
    trees.torch_file(outside / "epoch_2.pt")
    (inside / "epoch_2.pt").symlink_to(outside / "epoch_2.pt")
    trees.distributed_folder(outside / "step-9")
    (inside / "step-9").symlink_to(outside / "step-9")

    found = list_checkpoints(str(inside), CheckpointFormat.torch_save)

    assert [one.step for one in found.checkpoints] == [1]
    assert list_checkpoints(str(inside), CheckpointFormat.torch_distributed).checkpoints == ()


def test_a_rank_that_is_a_link_out_of_the_directory_makes_its_checkpoint_invalid(tmp_path: Path) -> None:
    trees.megatron(tmp_path / "inside", 1)
    rank = tmp_path / "inside" / "iter_0000001" / "mp_rank_01" / "model_optim_rng.pt"
    rank.rename(tmp_path / "elsewhere.pt")
    rank.symlink_to(tmp_path / "elsewhere.pt")

    assert "leads out of the directory" in list_checkpoints(str(tmp_path / "inside")).checkpoints[0].problem


def test_a_link_within_the_directory_is_a_name_like_any_other(tmp_path: Path) -> None:
    trees.torch_save(tmp_path, 7)
    (tmp_path / "epoch_8.pt").symlink_to(tmp_path / "epoch_7.pt")

    assert [one.is_valid for one in list_checkpoints(str(tmp_path)).checkpoints] == [True, True]


def test_a_pipe_does_not_hold_the_reader(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-1").mkdir()
    os.mkfifo(tmp_path / "checkpoint-1" / "trainer_state.json")

    [found] = list_checkpoints(str(tmp_path)).checkpoints

    assert found.problem == "checkpoint-1/trainer_state.json is not a regular file"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    trees.torch_save(tmp_path, 1, 2)
    (tmp_path / "epoch_2.pt").chmod(0)

    assert list_checkpoints(str(tmp_path)).checkpoints[0].problem == "epoch_2.pt cannot be read: Permission denied"


@pytest.mark.parametrize("what", ["not there", "a file"])
def test_a_directory_that_is_none_is_a_problem_and_not_an_empty_one(what: str, tmp_path: Path) -> None:
    if what == "a file":
        (tmp_path / "here").write_text("")

    assert "cannot be listed" in list_checkpoints(str(tmp_path / "here")).problem


def test_what_is_deleted_while_it_is_looked_at_is_told_as_missing(tmp_path: Path) -> None:
    trees.hugging_face(tmp_path, 1, 2)
    real = search._judged

    def deleting(*given: Any) -> object:
        (tmp_path / "checkpoint-2" / "optimizer.pt").unlink(missing_ok=True)
        return real(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "_judged", deleting)
        found = list_checkpoints(str(tmp_path))

    assert [one.is_valid for one in found.checkpoints] == [False, True]


def test_of_a_thousand_files_only_the_newest_is_judged(tmp_path: Path) -> None:
    whole = trees.torch_file(tmp_path / "epoch_0.pt").read_bytes()
    for step in range(1, 1_000):
        (tmp_path / f"epoch_{step}.pt").write_bytes(whole)

    newest = list_checkpoints(str(tmp_path), to_newest_valid=True)

    assert [one.step for one in newest.checkpoints] == [999]


def test_of_too_many_names_only_the_newest_are_read_and_answered(tmp_path: Path) -> None:
    """U6: 20,000 names of 200 characters made an answer of 10.7 MB."""
    for step in range(2_000):
        (tmp_path / f"{'n' * 190}-{step:06d}.pt").write_bytes(b"x")

    found = list_checkpoints(str(tmp_path), CheckpointFormat.torch_save)

    assert [one.step for one in found.checkpoints] == list(range(1_999, 1_999 - JUDGED_AT_MOST, -1))
    assert found.left_out == 2_000 - JUDGED_AT_MOST
    assert len(json.dumps(found.as_json())) < 256 * 1024
    assert found.why_incomplete == "of the newest 200 none is whole, 1800 older ones were not looked at"


@pytest.mark.parametrize(
    "opcodes",
    [b"c", b"\x8d\xff\xff\xff\xff\x00\x00\x00\x00"],
    ids=["a line that never ends", "four GiB of text"],
)
def test_a_value_that_is_too_long_is_not_read(tmp_path: Path, opcodes: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """U6: one file without a line end cost 8.2 s."""
    file = tmp_path / "model-1.pt"
    legacy = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
    with file.open("wb") as written:
        written.write(legacy + b"\x80\x02" + opcodes)
        written.truncate(3 * 1024**3)

    def look() -> object:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        problem = list_checkpoints(str(tmp_path)).checkpoints[0].problem
        is_small = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 128 * 1024
        return [problem, is_small]

    assert tell_apart(look, 60) == ["model-1.pt is cut off, or not a pickle", True]


def test_looking_for_the_newest_stops_at_the_first_valid_one(tmp_path: Path) -> None:
    trees.torch_save(tmp_path, 1, 2, 3)
    (tmp_path / "epoch_3.pt").write_bytes(b"PK\x03\x04")

    found = list_checkpoints(str(tmp_path), to_newest_valid=True)

    assert [(one.step, one.is_valid) for one in found.checkpoints] == [(3, False), (2, True)]


def test_a_process_of_its_own_says_the_same(tmp_path: Path) -> None:
    trees.megatron(tmp_path, 1, 2)

    assert list_apart(str(tmp_path), AUTO, 20) == list_checkpoints(str(tmp_path))


def test_a_file_system_that_hangs_is_a_problem_at_the_deadline(tmp_path: Path) -> None:
    began = time.monotonic()

    found = list_apart(str(tmp_path), AUTO, 0.5, prepare=lambda: time.sleep(60))

    assert found == DirectoryListing(str(tmp_path), AUTO, problem="the file system did not answer within 0.5 s")
    assert time.monotonic() - began < 5


def test_a_process_that_dies_is_a_problem(tmp_path: Path) -> None:
    found = list_apart(str(tmp_path), AUTO, 20, prepare=lambda: os.kill(os.getpid(), signal.SIGKILL))

    assert found.problem == "the search process ended without an answer"


def test_the_process_that_looks_keeps_no_stream_open(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    list_apart(str(tmp_path), AUTO, 20, prepare=lambda: os.system("echo said"))  # type: ignore[arg-type]

    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("path", ["/", "/mnt/fsx/llama-3", "/a/b.c_d@e+f=g,h:i"])
def test_a_plain_path_may_go_into_a_command(path: str) -> None:
    assert why_not_plain(path) == ""


@pytest.mark.parametrize(
    "path", ["", "a", "a/b", "/a/../b", "/a b", "/a'b", "/$(x)", "/a\n", "/ä", "/a;b", "/" + "a" * 1000, "~/x", "/a\0"]
)
def test_any_other_is_refused(path: str) -> None:
    assert why_not_plain(path)


def test_the_memory_of_the_process_is_bounded() -> None:
    assert 512 * 1024**2 < apart.MEMORY_BYTES <= 4 * 1024**3
