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
    assert "bytes, and needs at least" in problem


def test_safetensors(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    save_file = pytest.importorskip("safetensors.torch").save_file
    from nodeheal.checkpoints.files import check_safetensors
    from nodeheal.checkpoints.found import CheckpointBroken
    from nodeheal.checkpoints.place import CheckpointRoot

    save_file({"a": torch.ones(10)}, tmp_path / "model.safetensors")

    check_safetensors(CheckpointRoot(str(tmp_path)), "model.safetensors")
    (tmp_path / "model.safetensors").write_bytes((tmp_path / "model.safetensors").read_bytes()[:-1])
    with pytest.raises(CheckpointBroken):
        check_safetensors(CheckpointRoot(str(tmp_path)), "model.safetensors")


def test_the_trainer_of_hugging_face(tmp_path: Path) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=50, **sizes))
    row = {"input_ids": torch.ones(8, dtype=torch.long), "labels": torch.tensor(0)}
    given = {"max_steps": 4, "save_steps": 2, "report_to": [], "use_cpu": True}
    transformers.Trainer(
        model, transformers.TrainingArguments(str(tmp_path), **given), train_dataset=[row] * 64
    ).train()

    assert [(one.step, one.problem) for one in list_checkpoints(str(tmp_path)).checkpoints] == [(4, ""), (2, "")]
    for path in sorted((tmp_path / "checkpoint-4").iterdir()):
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        needed = path.name not in ("config.json", "training_args.bin")  # a run resumes without them
        assert list_checkpoints(str(tmp_path)).checkpoints[0].is_valid is not needed, path.name
        path.write_bytes(whole)


def test_numpy(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    from nodeheal.checkpoints.files import check_npz
    from nodeheal.checkpoints.place import CheckpointRoot

    numpy.savez(tmp_path / "step-1.npz", step=numpy.array(1), parameters=numpy.ones(10))

    check_npz(CheckpointRoot(str(tmp_path)), "step-1.npz")
