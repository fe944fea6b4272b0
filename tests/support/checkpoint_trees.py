"""Small checkpoints in every layout, as the programs write them, without the programs."""

import hashlib
import io
import json
import pickle
import struct
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C


def torch_file(path: Path, numbers: int = 64) -> Path:
    """As torch.save writes since 1.6: stored, data.pkl first, the list of contents last."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"step": 1}, protocol=2))
        archive.writestr("archive/data/0", bytes(numbers))
        archive.writestr("archive/version", b"3\n")
    return path


# {"weight": a storage of torch.FloatStorage, key "7", on "cpu", of 3 numbers}, in the opcodes of protocol 2
LEGACY_WEIGHT = (
    b"\x80\x02}q\x00X\x06\x00\x00\x00weightq\x01(X\x07\x00\x00\x00storageq\x02ctorch\nFloatStorage\nq\x03"
    b"X\x01\x00\x00\x007q\x04X\x03\x00\x00\x00cpuq\x05K\x03NtQs."
)


def legacy_torch_file(path: Path) -> Path:
    """As torch.save wrote before 1.6: one storage of three floats."""
    body = io.BytesIO()
    for said in (LEGACY_MAGIC, 1001, {"little_endian": True}):
        pickle.dump(said, body, protocol=2)
    body.write(LEGACY_WEIGHT)
    pickle.dump(["7"], body, protocol=2)
    body.write(struct.pack("<q", 3) + struct.pack("<3f", 1, 2, 3))
    path.write_bytes(body.getvalue())
    return path


def safetensors_file(path: Path, numbers: int = 16) -> Path:
    """One tensor."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = {"__metadata__": {"format": "pt"}, "w": {"dtype": "U8", "shape": [numbers], "data_offsets": [0, numbers]}}
    told = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(told)) + told + bytes(numbers))
    return path


@dataclass
class StorageInfo:
    """As torch.distributed.checkpoint.filesystem's: what .metadata says of each part."""

    relative_path: str
    offset: int
    length: int


def distributed_folder(folder: Path, ranks: int = 2) -> Path:
    """As FileSystemWriter leaves it: two parts in each rank's file."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = {}
    for rank in range(ranks):
        name = f"__{rank}_0.distcp"
        (folder / name).write_bytes(bytes(600))
        parts[f"w{rank}"] = StorageInfo(name, 0, 100)
        parts[f"v{rank}"] = StorageInfo(name, 100, 500)
    (folder / ".metadata").write_bytes(pickle.dumps({"storage_data": parts}))
    return folder


def megatron(root: Path, *steps: int, tracked: str | None = None, ranks: tuple[str, ...] = ("00", "01")) -> Path:
    """Iterations with one file a rank."""
    for step in steps:
        for rank in ranks:
            torch_file(root / f"iter_{step:07d}" / f"mp_rank_{rank}" / "model_optim_rng.pt")
    (root / "latest_checkpointed_iteration.txt").write_text(tracked or str(max(steps)))
    return root


def megatron_distributed(root: Path, *steps: int) -> Path:
    """Iterations as Megatron's core writes them."""
    for step in steps:
        core_folder(root / f"iter_{step:07d}")
    (root / "latest_checkpointed_iteration.txt").write_text(str(max(steps)))
    return root


def core_folder(folder: Path) -> Path:
    """A distributed checkpoint with Megatron's own two files."""
    distributed_folder(folder)
    (folder / "metadata.json").write_text('{"sharded_backend": "torch_dist", "sharded_backend_version": 1}')
    torch_file(folder / "common.pt")
    return folder


def hugging_face(root: Path, *steps: int) -> Path:
    """Two shards, an index, optimizer, scheduler, two ranks' random numbers, the state."""
    for step in steps:
        folder = root / f"checkpoint-{step}"
        shards = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
        for shard in shards:
            safetensors_file(folder / shard)
        index = {"weight_map": {"a": shards[0], "b": shards[1], "c": shards[1]}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        for name in ("optimizer.pt", "scheduler.pt", "rng_state_0.pth", "rng_state_1.pth"):
            torch_file(folder / name)
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": []}))
    return root


def neuronx(root: Path, *steps: int) -> Path:
    """Two tensor-parallel ranks, marked as begun and done."""
    for step in steps:
        tag = root / f"step_{step}"
        for part in ("model", "optim"):
            for rank in (0, 1):
                torch_file(tag / part / f"dp_rank_00_tp_rank_0{rank}_pp_rank_00.pt")
        torch_file(tag / "scheduler.pt")
        for marker in ("checkpoint", "done"):
            (tag / marker).write_text("1")
    return root


def nemo(root: Path, *steps: int) -> Path:
    """NeMo 2's folders."""
    for step in steps:
        folder = root / "checkpoints" / f"llama--val_loss=2.10-step={step}-consumed_samples={step * 8}.0"
        core_folder(folder / "weights")
        (folder / "context").mkdir()
    return root


def nemo_archive(path: Path) -> Path:
    """A .nemo file."""
    with tarfile.open(path, "w") as archive:
        for name, body in (("./model_config.yaml", b"a: 1\n"), ("./model_weights.ckpt", bytes(5_000))):
            about = tarfile.TarInfo(name)
            about.size = len(body)
            archive.addfile(about, io.BytesIO(body))
    return path


def torch_distributed(root: Path, *steps: int) -> Path:
    """A folder a step, as torchtitan names them."""
    for step in steps:
        distributed_folder(root / f"step-{step}")
    return root


def torch_save(root: Path, *steps: int) -> Path:
    """A file a step."""
    for step in steps:
        torch_file(root / f"epoch_{step}.pt")
    return root


def numpy_files(root: Path, *steps: int) -> Path:
    """As examples/numpy-trainer writes them."""
    root.mkdir(exist_ok=True)
    for step in steps:
        body = io.BytesIO()
        with zipfile.ZipFile(body, "w") as archive:
            archive.writestr("parameters.npy", bytes(64))
        path = root / f"step-{step:06d}.npz"
        path.write_bytes(body.getvalue())
        path.with_suffix(".sha256").write_text(hashlib.sha256(body.getvalue()).hexdigest())
    return root
