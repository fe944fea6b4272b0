"""Nodes for the tests of checks: folders as the kernel would fill them, and tools that answer as told."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nodeheal.agent.checks.check import CheckContext
from nodeheal.agent.diagnostics.bench import Output
from nodeheal.agent.runtime import probe
from nodeheal.agent.runtime.config import AgentConfig
from nodeheal.contract.vocabulary import Provider, SchedulerKind

HUNG = Output("", "", probe.Ran(seconds=9.0, exit_code=-9, error="no answer within 9 s"))
ABSENT = Output("", "", probe.Ran(error=probe.NOT_INSTALLED))


def says(text: str, exit_code: int = 0, errors: str = "") -> Output:
    """A tool that ran to its end."""
    return Output(text, errors, probe.Ran(1.0, exit_code))


@dataclass
class Node:
    """A node that a test furnishes."""

    root: Path
    accelerators: int | None = None
    answers: dict[str, Output] = field(default_factory=dict)  # by the beginning of a command
    ran: list[str] = field(default_factory=list)

    @property
    def place(self) -> CheckContext:
        """As a check sees it."""
        who = ("mi-0a1b2c3d", "training", "h100", Provider.hybrid, SchedulerKind.ECS, "eu-west-1")
        config = AgentConfig(*who, accelerators=self.accelerators)
        return CheckContext(config, self._run, self.root / "proc", self.root / "sys", self.root / "dev")

    def write(self, path: str, text: str = "") -> None:
        """A file with what it says."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def is_a(self, instance_type: str) -> "Node":
        """Its firmware says so."""
        self.write("sys/class/dmi/id/product_name", instance_type)
        return self

    def gpus(self, on_bus: int, with_driver: int | None = None) -> "Node":
        """So many GPUs; None: without a driver."""
        for number in range(on_bus):
            self.pci(number, "0x030200")
        for number in range(with_driver or 0):
            self.write(f"proc/driver/nvidia/gpus/{address(number)}/information", "Model: NVIDIA H100")
        if with_driver is not None:
            self.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.20  x")
        return self

    def pci(self, number: int, kind: str, vendor: str = "0x10de") -> None:
        """One device on the bus."""
        self.write(f"sys/bus/pci/devices/{address(number)}/vendor", vendor)
        self.write(f"sys/bus/pci/devices/{address(number)}/class", kind)

    def _run(self, command: Sequence[str], seconds: float) -> Output:
        self.ran.append(" ".join(command))
        found = [answer for words, answer in self.answers.items() if self.ran[-1].startswith(words)]
        return found[0] if found else ABSENT


def installed(folder: Path, tool: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tool on the PATH, which holds nothing else."""
    path = folder / "bin" / tool
    path.parent.mkdir()
    path.touch(mode=0o755)
    monkeypatch.setenv("PATH", f"/nowhere:{path.parent}")
    return path


def address(number: int) -> str:
    """Where the nth device is."""
    return f"0000:{number + 16:02x}:00.0"
