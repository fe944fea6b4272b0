"""A fake of NVIDIA's NCCL and CUDA runtime, built with gcc; see nccl.c for what it can be told."""

import os
import subprocess
from pathlib import Path

SOURCE = Path(__file__).parent / "nccl.c"
# All that the program looks for: on a machine with a real CUDA none of that may come before.
LIBRARIES = ("libnccl.so.2", "libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so")


def build(folder: Path) -> Path:
    """One library by all their names, in a folder for LD_LIBRARY_PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    first, *others = (folder / name for name in LIBRARIES)
    command = ["gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", str(first), str(SOURCE)]
    subprocess.run(command, check=True, timeout=60)
    for other in others:
        os.link(first, other)
    return folder
