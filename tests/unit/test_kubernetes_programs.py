"""Kubernetes' programs are found, unpacked once, built only where one is missing, and ended by who has started them."""

import lzma
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from sandbox.kubernetes import programs
from sandbox.kubernetes.daemons import DaemonEndedError, Daemons
from stacks.settings import REPOSITORY


@pytest.fixture
def assets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs that has none yet, in place of the machine's."""
    folder = tmp_path / "kubernetes" / "bin"
    folder.mkdir(parents=True)
    monkeypatch.setenv(programs.ASSETS, str(folder))
    monkeypatch.setattr(programs, "_BUILD", tmp_path / "build")
    return folder


def fill(assets: Path, *names: str) -> None:
    for name in names:
        path = assets.parent / name if "/" in name else assets / f"{name}.xz"
        path.parent.mkdir(exist_ok=True)
        path.touch()


def make_kubernetes(assets: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """What the recipe does where the only `go` fails."""
    (folder / "go").write_text("#!/bin/sh\necho go is called >&2\nexit 1\n")
    (folder / "go").chmod(0o755)
    recipe = REPOSITORY / "sandbox" / "kubernetes" / "recipe" / "build.sh"
    variables = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", programs.ASSETS: str(assets)}
    return subprocess.run(
        [str(recipe), str(folder / "out")], env=variables, capture_output=True, text=True, check=False
    )


def test_what_is_missing_is_named_with_what_to_do(assets: Path) -> None:
    fill(assets, "etcd", programs.JOBSET_WEBHOOKS)

    assert programs.why_missing("etcd", programs.JOBSET_WEBHOOKS) == ""
    why = programs.why_missing("etcd", "kubectl", programs.KUEUE_WEBHOOKS)
    assert why.startswith("kubectl, manifests/kueue-webhooks.yaml not found: build them with `make kubernetes`")
    with pytest.raises(FileNotFoundError, match="kubectl not found"):
        programs.program("kubectl")


def test_a_packed_program_is_unpacked_once_for_all_and_again_when_it_has_changed(assets: Path) -> None:
    packed = assets / "kubectl.xz"
    packed.write_bytes(lzma.compress(b"#!/bin/sh\necho one\n"))

    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(programs.program, ["kubectl"] * 8))

    [path] = found
    assert subprocess.check_output([path]) == b"one\n"
    unpacked = path.stat()
    assert programs.program("kubectl").stat() == unpacked
    packed.write_bytes(lzma.compress(b"#!/bin/sh\necho two\n"))
    assert subprocess.check_output([programs.program("kubectl")]) == b"two\n"


def test_nothing_is_built_where_all_is_there(assets: Path, tmp_path: Path) -> None:
    fill(assets, *programs.WITH_KUEUE)

    done = make_kubernetes(assets, tmp_path)

    assert (done.returncode, done.stdout) == (0, f"Kubernetes is complete in {assets}: nothing is built\n")


@pytest.mark.parametrize("absent", ["kueue", programs.KUEUE_RESOURCES, programs.CUSTOM_RESOURCES[0]])
def test_one_that_is_missing_is_named_and_built(assets: Path, tmp_path: Path, absent: str) -> None:
    fill(assets, *(name for name in programs.WITH_KUEUE if name != absent))

    done = make_kubernetes(assets, tmp_path)

    assert f"KUBEBUILDER_ASSETS lacks {absent}: " in done.stderr
    assert (done.returncode, "go is called" in done.stderr) == (1, True)


def test_a_program_that_has_ended_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    daemons = Daemons(tmp_path)
    daemons.start(Path(sys.executable), ["-c", "print('no such flag'); raise SystemExit(3)"])

    with pytest.raises(DaemonEndedError, match=r"(?s)has ended with 3:\nno such flag"):
        daemons.wait(lambda: False, "it is ready", seconds=30)


def test_programs_end_with_their_owner_and_no_others(tmp_path: Path) -> None:
    other, own = Daemons(tmp_path / "other"), Daemons(tmp_path / "own")
    for daemons in (other, own):
        daemons.log_of("any").parent.mkdir()
        daemons.start(Path(sys.executable), ["-c", "import time; time.sleep(600)"])
    [stays], [ends] = other.pids().values(), own.pids().values()

    own.end()

    assert (psutil.pid_exists(ends), psutil.pid_exists(stays)) == (False, True)
    other.end()
    assert not psutil.pid_exists(stays)
