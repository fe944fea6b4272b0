"""The same, of files that the real libraries have written. Only where they are installed."""

from collections import OrderedDict
from pathlib import Path

import pytest

from nodeheal.checkpoints.search import list_checkpoints


def whole_then_cut(root: Path, path: Path) -> tuple[list[str], str]:
    """What is wrong with the whole one, and with the one whose last byte is missing."""
    whole = [one.problem for one in list_checkpoints(str(root)).checkpoints]
    path.write_bytes(path.read_bytes()[:-1])
    return whole, list_checkpoints(str(root)).checkpoints[0].problem


@pytest.mark.parametrize("new", [True, False])
def test_torch_save(tmp_path: Path, new: bool) -> None:
    torch = pytest.importorskip("torch")
    weights = OrderedDict(a=torch.ones(100), b=torch.zeros(7, dtype=torch.int64), c=torch.ones(3).half())
    torch.save({"model": weights, "step": 9}, tmp_path / "model_9.pt", _use_new_zipfile_serialization=new)

    whole, problem = whole_then_cut(tmp_path, tmp_path / "model_9.pt")

    assert whole == [""]
    assert "cut off" in problem


def test_torch_distributed_checkpoint(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    saved = {"a": torch.ones(1_000), "step": 9}
    pytest.importorskip("torch.distributed.checkpoint").save(
        saved, checkpoint_id=str(tmp_path / "step-9"), no_dist=True
    )

    whole, problem = whole_then_cut(tmp_path, tmp_path / "step-9" / "__0_0.distcp")

    assert whole == [""]
    assert "bytes of at least" in problem


def test_safetensors(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    save_file = pytest.importorskip("safetensors.torch").save_file
    from nodeheal.checkpoints.files import check_safetensors
    from nodeheal.checkpoints.found import Broken
    from nodeheal.checkpoints.place import Place

    save_file({"a": torch.ones(10)}, tmp_path / "model.safetensors")

    check_safetensors(Place(str(tmp_path)), "model.safetensors")
    (tmp_path / "model.safetensors").write_bytes((tmp_path / "model.safetensors").read_bytes()[:-1])
    with pytest.raises(Broken):
        check_safetensors(Place(str(tmp_path)), "model.safetensors")


def test_numpy(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    from nodeheal.checkpoints.files import check_npz
    from nodeheal.checkpoints.place import Place

    numpy.savez(tmp_path / "step-1.npz", step=numpy.array(1), parameters=numpy.ones(10))

    check_npz(Place(str(tmp_path)), "step-1.npz")
