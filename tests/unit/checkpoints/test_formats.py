"""Each format: the newest that is whole is found, and what is torn or partial is skipped with its reason."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeheal.checkpoints.found import DirectoryListing
from nodeheal.checkpoints.search import list_checkpoints
from nodeheal.contract.vocabulary import CheckpointFormat
from tests.support import checkpoint_trees as trees

BUILDERS: dict[str, Callable[..., Path]] = {
    "megatron": trees.megatron,
    "hugging_face": trees.hugging_face,
    "numpy": trees.numpy_files,
    "neuronx": trees.neuronx,
    "nemo": trees.nemo,
    "torch_distributed": trees.torch_distributed,
    "torch_save": trees.torch_save,
}


def cut(path: Path, left: float = 0.5) -> None:
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * left)])


def look(root: Path, wanted: str = "auto") -> DirectoryListing:
    return list_checkpoints(str(root), CheckpointFormat(wanted))


def steps(listing: DirectoryListing) -> list[tuple[int | None, bool]]:
    return [(one.step, one.is_valid) for one in listing.checkpoints]


@pytest.mark.parametrize("wanted", list(BUILDERS))
def test_a_format_is_found_out_by_looking_and_its_steps_come_newest_first(wanted: str, tmp_path: Path) -> None:
    BUILDERS[wanted](tmp_path, 20, 300, 1000)

    for found in (look(tmp_path), look(tmp_path, wanted)):
        assert found.problem == ""
        assert found.format == wanted
        assert steps(found) == [(1000, True), (300, True), (20, True)], [one.problem for one in found.checkpoints]


@pytest.mark.parametrize("wanted", list(BUILDERS))
def test_every_file_that_is_cut_off_makes_its_checkpoint_invalid_and_no_other(wanted: str, tmp_path: Path) -> None:
    BUILDERS[wanted](tmp_path / "model", 1, 77)
    ignored = {"checkpoint", "done", "latest_checkpointed_iteration.txt"}  # markers: that they are there is all

    newest = {p for p in (tmp_path / "model").rglob("*") if p.is_file() and p.name not in ignored}
    newest = {p for p in newest if "77" in p.relative_to(tmp_path).parts[1 if wanted != "nemo" else 2]}
    assert newest
    for path in sorted(newest):
        whole = path.read_bytes()
        for left in (0.0, 0.5, 0.97):
            if path.suffix in (".json", ".sha256") and left == 0.97:
                left = 0.5  # one byte less of white space is whole
            path.write_bytes(whole[: int(len(whole) * left)])
            found = look(tmp_path / "model", wanted)
            assert steps(found) == [(77, False), (1, True)], (path.name, left, found)
            assert found.checkpoints[0].problem
        path.write_bytes(whole)


@pytest.mark.parametrize("wanted", list(BUILDERS))
def test_a_file_that_is_not_there_makes_its_checkpoint_invalid(wanted: str, tmp_path: Path) -> None:
    BUILDERS[wanted](tmp_path, 1, 77)
    optional = {"scheduler.pt", "common.pt", "rng_state_1.pth", "done", "checkpoint", "step-000077.npz", "epoch_77.pt"}

    there = [p for p in tmp_path.rglob("*") if p.is_file() and p.name not in optional]
    mine = [p for p in there if "77" in p.relative_to(tmp_path).parts[0 if wanted != "nemo" else 1]]
    for path in mine:
        if "mp_rank_01" in path.parts or "tp_rank_01" in path.name:
            continue  # the last rank's: nothing else tells how many there were
        kept = path.read_bytes()
        path.unlink()
        assert steps(look(tmp_path, wanted))[0] == (77, False), path
        path.write_bytes(kept)


def test_megatron_a_folder_newer_than_the_tracker_was_not_finished(tmp_path: Path) -> None:
    trees.megatron(tmp_path, 1000, 2000, tracked="1000")

    found = look(tmp_path)

    assert steps(found) == [(2000, False), (1000, True)]
    assert found.checkpoints[0].problem == "it was not finished: latest_checkpointed_iteration.txt still says 1000"


def test_megatron_a_torn_tracker_hides_no_checkpoint(tmp_path: Path) -> None:
    trees.megatron(tmp_path, 1000, tracked="10x\0")

    [found] = look(tmp_path).checkpoints

    assert found.is_valid
    assert found.remark == "latest_checkpointed_iteration.txt is torn: Megatron-LM itself finds no checkpoint"


def test_megatron_a_release_is_what_the_tracker_says(tmp_path: Path) -> None:
    trees.megatron(tmp_path, 1000, tracked="release")
    trees.torch_file(tmp_path / "release" / "mp_rank_00" / "model_optim_rng.pt")

    found = {one.path.rpartition("/")[2]: one.is_valid for one in look(tmp_path).checkpoints}

    assert found == {"release": True, "iter_0001000": False}


def test_megatron_a_tracker_that_names_nothing_is_told(tmp_path: Path) -> None:
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("1000")

    assert look(tmp_path).checkpoints[0].problem == "it says 1000, and that folder does not exist"


@pytest.mark.parametrize("ranks", [("00_000", "01_001"), ("00", "02"), ("00", "01_000")])
def test_megatron_a_rank_that_is_missing_between_others_is_missed(ranks: tuple[str, ...], tmp_path: Path) -> None:
    trees.megatron(tmp_path, 5, ranks=ranks)

    assert not look(tmp_path).checkpoints[0].is_valid


def test_megatron_the_distributed_optimizer_belongs_to_every_rank(tmp_path: Path) -> None:
    trees.megatron(tmp_path, 5)
    trees.torch_file(tmp_path / "iter_0000005" / "mp_rank_00" / "distrib_optim.pt")

    assert look(tmp_path).checkpoints[0].problem == "iter_0000005/mp_rank_01/distrib_optim.pt does not exist"


def test_megatron_distributed_checkpoints_are_whole_with_their_own_files(tmp_path: Path) -> None:
    trees.megatron_distributed(tmp_path, 1, 2, 3)
    (tmp_path / "iter_0000003" / "metadata.json").unlink()
    (tmp_path / "iter_0000002" / "__1_0.distcp").unlink()

    assert steps(look(tmp_path)) == [(3, False), (2, False), (1, True)]


def test_zarr_is_said_to_be_looked_at_from_outside_only(tmp_path: Path) -> None:
    trees.megatron_distributed(tmp_path, 1)
    (tmp_path / "iter_0000001" / "metadata.json").write_text('{"sharded_backend": "zarr"}')
    (tmp_path / "iter_0000001" / ".metadata").unlink()

    assert look(tmp_path).checkpoints[0].remark == "zarr: only its metadata.json was checked"


def test_a_distributed_checkpoint_that_is_being_written_is_told_apart_from_one_that_is_broken(tmp_path: Path) -> None:
    trees.torch_distributed(tmp_path, 1, 2)
    (tmp_path / "step-2" / ".metadata").rename(tmp_path / "step-2" / ".metadata.tmp")

    told = look(tmp_path).checkpoints[0].problem
    assert told == "it was not finished: .metadata, written last, is missing (.metadata.tmp is there)"


def test_a_part_that_is_shorter_than_metadata_says_is_torn(tmp_path: Path) -> None:
    folder = trees.distributed_folder(tmp_path / "step-7")
    (folder / "__1_0.distcp").write_bytes(bytes(599))

    assert look(tmp_path).checkpoints[0].problem == "__1_0.distcp has 599 bytes, and needs at least 600"


def test_a_directory_that_is_itself_a_distributed_checkpoint_is_one(tmp_path: Path) -> None:
    trees.distributed_folder(tmp_path / "step-12")

    assert steps(look(tmp_path / "step-12")) == [(12, True)]


def test_hugging_face_a_state_of_another_step_is_none(tmp_path: Path) -> None:
    trees.hugging_face(tmp_path, 5)
    (tmp_path / "checkpoint-5" / "trainer_state.json").write_text('{"global_step": 4}')

    assert look(tmp_path).checkpoints[0].problem == "trainer_state.json has step 4"


def test_hugging_face_a_temporary_name_is_not_finished(tmp_path: Path) -> None:
    trees.hugging_face(tmp_path, 5, 6)
    (tmp_path / "checkpoint-6").rename(tmp_path / "tmp-checkpoint-6")

    assert steps(look(tmp_path)) == [(6, False), (5, True)]


def test_hugging_face_weights_alone_are_nothing_to_resume_from(tmp_path: Path) -> None:
    trees.hugging_face(tmp_path, 5)
    (tmp_path / "checkpoint-5" / "optimizer.pt").unlink()

    assert "it has no optimizer state" in look(tmp_path).checkpoints[0].problem


def test_hugging_face_without_random_numbers_it_is_valid_and_that_is_said(tmp_path: Path) -> None:
    trees.hugging_face(tmp_path, 5)
    for rank in (0, 1):
        (tmp_path / "checkpoint-5" / f"rng_state_{rank}.pth").unlink()

    assert look(tmp_path).checkpoints[0].remark == "it has no rng_state: a run resumes, but with other random numbers"


def test_hugging_face_deepspeed_keeps_each_ranks_state(tmp_path: Path) -> None:
    folder = trees.hugging_face(tmp_path, 5) / "checkpoint-5"
    (folder / "optimizer.pt").unlink()
    states = folder / "global_step5"
    trees.torch_file(states / "mp_rank_00_model_states.pt")
    for rank in (0, 1, 2):
        trees.torch_file(states / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")

    assert steps(look(tmp_path)) == [(5, True)]
    (states / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    assert "rank 1/0 is missing" in look(tmp_path).checkpoints[0].problem


def test_hugging_face_fsdp_keeps_distributed_checkpoints(tmp_path: Path) -> None:
    folder = trees.hugging_face(tmp_path, 5) / "checkpoint-5"
    for name in ("optimizer.pt", "model.safetensors.index.json"):
        (folder / name).unlink()
    trees.distributed_folder(folder / "pytorch_model_fsdp_0")
    trees.distributed_folder(folder / "optimizer_0")

    assert steps(look(tmp_path)) == [(5, True)]
    cut(folder / "optimizer_0" / ".metadata")
    assert look(tmp_path).checkpoints[0].problem == ".metadata is cut off"


def test_nemo_the_marker_beside_it_says_that_it_was_not_finished(tmp_path: Path) -> None:
    trees.nemo(tmp_path, 10, 20)
    [newest] = (tmp_path / "checkpoints").glob("*step=20*")
    newest.with_name(f"{newest.name}-unfinished").touch()

    found = look(tmp_path)

    assert steps(found) == [(20, False), (10, True)]
    assert found.checkpoints[0].problem.endswith("-unfinished still exists")


def test_nemo_1_files_and_ranks_are_checked(tmp_path: Path) -> None:
    trees.torch_file(tmp_path / "gpt--step=5.ckpt")
    trees.torch_file(tmp_path / "gpt--step=6" / "mp_rank_00" / "model_weights.ckpt")
    trees.torch_file(tmp_path / "gpt--step=7" / "tp_rank_00_pp_rank_001" / "model_weights.ckpt")

    assert steps(look(tmp_path, "nemo")) == [(7, False), (6, True), (5, True)]


def test_a_nemo_archive_is_weights_and_a_cut_one_is_nothing(tmp_path: Path) -> None:
    archive = trees.nemo_archive(tmp_path / "final.nemo")

    assert look(tmp_path).checkpoints[0].remark == "weights only: a run can start from it, but not resume"
    cut(archive)
    assert look(tmp_path).checkpoints[0].problem == "final.nemo is cut off, or not a tar archive"


def test_neuronx_a_tag_that_is_not_done_is_none(tmp_path: Path) -> None:
    trees.neuronx(tmp_path, 1, 2)
    (tmp_path / "step_2" / "done").unlink()

    assert steps(look(tmp_path)) == [(2, False), (1, True)]


def test_neuronx_older_versions_name_the_newest_tag(tmp_path: Path) -> None:
    trees.neuronx(tmp_path, 1, 2, 3)
    for step in (1, 2, 3):
        (tmp_path / f"step_{step}" / "done").unlink()
        (tmp_path / f"step_{step}" / "checkpoint").unlink()
    (tmp_path / "newest").write_text("step_2")

    assert steps(look(tmp_path)) == [(3, False), (2, True), (1, True)]


def test_torch_save_before_1_6_is_followed_to_its_last_number(tmp_path: Path) -> None:
    path = trees.legacy_torch_file(tmp_path / "model_3.pt")

    assert steps(look(tmp_path)) == [(3, True)]
    path.write_bytes(path.read_bytes()[:-1])
    assert look(tmp_path).checkpoints[0].problem == "model_3.pt is cut off within storage 7"


def test_a_hole_in_the_middle_of_a_torch_file_is_seen(tmp_path: Path) -> None:
    path = trees.torch_file(tmp_path / "model_3.pt", 100_000)
    whole = path.read_bytes()
    at = whole.rindex(b"PK\x03\x04")
    path.write_bytes(whole[:at] + bytes(4) + whole[at + 4 :])

    assert look(tmp_path).checkpoints[0].problem == "model_3.pt is torn: archive/version is not at its offset"


def test_torch_save_temporary_names_are_not_finished(tmp_path: Path) -> None:
    trees.torch_save(tmp_path, 1)
    trees.torch_file(tmp_path / "epoch_2.pt.tmp")

    assert steps(look(tmp_path)) == [(2, False), (1, True)]


def test_torch_save_a_folder_of_ranks_is_one_checkpoint(tmp_path: Path) -> None:
    for step, rank in ((1, 0), (1, 1), (2, 0), (2, 1)):
        trees.torch_file(tmp_path / f"step-{step}" / f"rank_{rank}.pt")
    cut(tmp_path / "step-2" / "rank_1.pt")

    assert steps(look(tmp_path)) == [(2, False), (1, True)]


def test_without_steps_the_time_decides(tmp_path: Path) -> None:
    import os

    for name, at in (("last.pt", 300), ("best.pt", 100), ("epoch_7.pt", 200)):
        os.utime(trees.torch_file(tmp_path / name), (at, at))

    names = [one.path.rpartition("/")[2] for one in look(tmp_path).checkpoints]
    assert names == ["last.pt", "epoch_7.pt", "best.pt"]


def test_a_checksum_that_is_another_is_a_torn_file(tmp_path: Path) -> None:
    trees.numpy_files(tmp_path, 1, 2)
    (tmp_path / "step-000002.sha256").write_text("0" * 64)

    found = look(tmp_path)

    assert found.newest_valid is not None
    assert found.newest_valid.step == 1
    assert [one.told for one in found.skipped] == ["step-000002.npz: its checksum does not match: it is torn"]


def test_what_no_format_knows_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "README").write_text(json.dumps({}))
    shutil.copytree(tmp_path, tmp_path / "logs", ignore=lambda *_: ["logs"])

    assert (look(tmp_path).checkpoints, look(tmp_path).problem) == ((), "")
