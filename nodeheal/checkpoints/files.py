"""Checks whether one file is whole, by its beginning, its end and its size."""

import gzip
import io
import os
import re
import struct
import tarfile
import zipfile
from itertools import islice, pairwise
from typing import BinaryIO

from nodeheal.checkpoints.found import CheckpointBroken
from nodeheal.checkpoints.pickles import Atom, atoms
from nodeheal.checkpoints.place import CheckpointRoot
from nodeheal.contract.json_text import read_json

HEADERS_AT_MOST = 2_000  # local headers of one zip file that are checked
SAFETENSORS_HEADER_BYTES = 100_000_000  # the format's own limit
TAR_MEMBERS_AT_MOST = 10_000
_LOCAL_HEADER, _LOCAL_HEADER_BYTES = b"PK\x03\x04", 30
# The first pickle of torch.save before 1.6: the number 0x1950a86a20f9469cfc6c, in protocol 2.
_LEGACY_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_LEGACY_PICKLES = 3  # the magic number, the protocol's version, the writer's system
_STORAGE = re.compile(r"torch(?:\.cuda)? (\w+)Storage")
_ELEMENT_BYTES = {
    **dict.fromkeys(("Double", "Long", "ComplexFloat", "QInt64"), 8),
    **dict.fromkeys(("Float", "Int", "QInt32"), 4),
    **dict.fromkeys(("Half", "BFloat16", "Short"), 2),
    **dict.fromkeys(("Byte", "Char", "Bool", "QInt8", "QUInt8", "Untyped"), 1),
    "ComplexDouble": 16,
}


def check_torch(place: CheckpointRoot, name: str) -> None:
    """Check a file of torch.save: a zip archive since PyTorch 1.6, whose directory is written last; before that pickles
    followed by the numbers. The format is that of torch/serialization.py. Raises CheckpointBroken.
    """
    with place.opened(name) as file:
        start = file.read(len(_LEGACY_MAGIC))
        file.seek(0)
        if start.startswith(_LOCAL_HEADER):
            _check_zip(file, name, must_have="data.pkl")
        elif start == _LEGACY_MAGIC:
            _check_legacy(file, name)
        else:
            raise CheckpointBroken(
                f"{name} is empty" if not start else f"{name} does not begin like a file of torch.save"
            )


def check_npz(place: CheckpointRoot, name: str) -> None:
    """A file of numpy.savez: a zip archive of arrays. Raises CheckpointBroken."""
    with place.opened(name) as file:
        _check_zip(file, name, must_have=".npy")


def check_safetensors(place: CheckpointRoot, name: str) -> None:
    """Check a safetensors file: eight bytes of length, a JSON header with the position of each tensor, and exactly that
    many bytes after it, as in the README of huggingface/safetensors. Raises CheckpointBroken.
    """
    with place.opened(name) as file:
        size, start = _size(file), file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == struct.calcsize("<Q") else 0
        if not 0 < length <= min(SAFETENSORS_HEADER_BYTES, size):
            raise CheckpointBroken(f"{name} does not begin like a safetensors file")
        wanted = _end_of_tensors(file.read(length), name)
    if size != 8 + length + wanted:
        raise CheckpointBroken(f"{name} has {size} bytes instead of {8 + length + wanted}")


def check_nemo(place: CheckpointRoot, name: str) -> str:
    """Check a .nemo file: a tar archive of the configuration and the weights, as in NeMo's docs. Raises
    CheckpointBroken.
    """
    with place.opened(name) as file:
        if file.read(2) == b"\x1f\x8b":
            file.seek(0)
            return _check_gzip(file, name)
        file.seek(0)
        try:
            with tarfile.open(fileobj=file, mode="r:") as archive:
                members = [member.name for member in islice(archive, TAR_MEMBERS_AT_MOST)]
        except (tarfile.TarError, ValueError, OverflowError) as error:
            raise CheckpointBroken(f"{name} is cut off, or not a tar archive") from error
    if not any("model_weights" in member for member in members):
        raise CheckpointBroken(f"{name} contains no weights")
    return "weights only: a run can start from it, but not resume"


def _check_gzip(file: BinaryIO, name: str) -> str:
    try:
        with gzip.open(file) as content:
            content.read(tarfile.BLOCKSIZE)
    except (OSError, EOFError, ValueError) as error:
        raise CheckpointBroken(f"{name} is cut off, or not an archive") from error
    return "compressed: only its beginning was read"


def _check_zip(file: BinaryIO, name: str, must_have: str) -> None:
    """Check the directory at the end, and its entries: each begins at its offset, and ends before the end."""
    try:
        with zipfile.ZipFile(file) as archive:
            contents = archive.infolist()
    except (zipfile.BadZipFile, ValueError, struct.error, OverflowError, NotImplementedError) as error:
        raise CheckpointBroken(f"{name} is cut off: its directory, written last, is missing") from error
    if not any(entry.filename.endswith(must_have) for entry in contents):
        raise CheckpointBroken(f"{name} contains no {must_have}")
    size = _size(file)
    for entry in contents[:HEADERS_AT_MOST]:
        file.seek(max(entry.header_offset, 0))
        begins = file.read(len(_LOCAL_HEADER)) == _LOCAL_HEADER
        if not begins or entry.header_offset + _LOCAL_HEADER_BYTES + entry.compress_size > size:
            raise CheckpointBroken(f"{name} is torn: {entry.filename} is not at its offset")


def _check_legacy(file: BinaryIO, name: str) -> None:
    """Check pickles, the last of which lists the storages; then each storage: eight bytes of count, and its numbers."""
    for _ in range(_LEGACY_PICKLES):
        list(atoms(file, name))
    sizes = _storages(list(atoms(file, name)))
    for key in [atom for atom in atoms(file, name) if isinstance(atom, str)]:
        counted = file.read(8)
        if len(counted) < struct.calcsize("<q"):
            raise CheckpointBroken(f"{name} is cut off: storage {key} is missing")
        count = struct.unpack("<q", counted)[0]
        end = file.tell() + count * sizes.get(key, 1)
        if count < 0 or end > _size(file):
            raise CheckpointBroken(f"{name} is cut off within storage {key}")
        file.seek(end)


def _storages(values: list[Atom]) -> dict[str, int]:
    """Return bytes for each element, by the storage's key: the pickle has each as its type, followed by its key."""
    sizes: dict[str, int] = {}
    for kind, key in pairwise(values):
        is_storage = _STORAGE.fullmatch(kind) if isinstance(kind, str) else None
        if is_storage and isinstance(key, str):
            sizes[key] = _ELEMENT_BYTES.get(is_storage[1], 1)
    return sizes


def _end_of_tensors(header: bytes, name: str) -> int:
    try:
        tensors = read_json(header)
        ends = [int(tensor["data_offsets"][1]) for key, tensor in tensors.items() if key != "__metadata__"]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise CheckpointBroken(f"{name}: its header cannot be read") from error
    return max(ends, default=0)


def _size(file: BinaryIO) -> int:
    here = file.tell()
    end = file.seek(0, io.SEEK_END)
    file.seek(here, os.SEEK_SET)
    return end
