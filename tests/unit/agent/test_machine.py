"""What the node knows of itself without being told."""

from pathlib import Path

import pytest

from nodeheal.agent.identity.machine import identity
from nodeheal.agent.runtime.config import LABELS, load
from tests.support.agent_config import written

OPEN_DRIVER = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  575.57.08  Release Build  (dvs@U22)  Sat May 24 2025\n"
    "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n"
)
OLD_DRIVER = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version: 11\n"
)


def driver(directory: Path, version: str, model: str = "NVIDIA H100 80GB HBM3") -> tuple[Path, Path]:
    """/proc/driver/nvidia as a driver of this version shows it."""
    (directory / "gpus" / "0000:b9:00.0").mkdir(parents=True)
    (directory / "gpus" / "0000:b9:00.0" / "information").write_text(f"Model: \t\t {model}\nIRQ:   \t\t 18\n")
    (directory / "version").write_text(version)
    return directory / "version", directory / "gpus"


@pytest.mark.parametrize(("said", "version"), [(OPEN_DRIVER, "575.57.08"), (OLD_DRIVER, "535.104.05")])
def test_the_driver_says_its_version_and_the_product(tmp_path: Path, said: str, version: str) -> None:
    who = identity(load(written(tmp_path)), *driver(tmp_path, said))

    assert (who.product, who.labels) == ("NVIDIA H100 80GB HBM3", {"driver_version": version})


def test_what_the_operator_says_comes_first(tmp_path: Path) -> None:
    config = load(written(tmp_path, product="H200", labels={"rack": "r7", "driver_version": "fleet-a"}))

    who = identity(config, *driver(tmp_path, OLD_DRIVER))

    assert (who.product, who.labels) == ("H200", {"driver_version": "fleet-a", "rack": "r7"})


@pytest.mark.parametrize("said", ["", "NVRM version: something else entirely\n", "\0" * 10_000])
def test_a_driver_that_says_nothing_readable_adds_nothing(tmp_path: Path, said: str) -> None:
    who = identity(load(written(tmp_path)), *driver(tmp_path, said, model=""))

    assert (who.product, dict(who.labels)) == (None, {})


def test_a_node_without_the_driver_is_described_by_its_configuration_alone(tmp_path: Path) -> None:
    who = identity(load(written(tmp_path)), tmp_path / "no-version", tmp_path / "no-gpus")

    assert (who.product, dict(who.labels)) == (None, {})


def test_the_driver_adds_no_label_where_there_is_no_room(tmp_path: Path) -> None:
    full = {f"label-{number}": "x" for number in range(LABELS)}

    who = identity(load(written(tmp_path, labels=full)), *driver(tmp_path, OLD_DRIVER))

    assert who.labels == full
