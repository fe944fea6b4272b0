"""One Slurm for all tests of this folder; skipped where none is installed."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from sandbox.slurm import why_missing
from tests.slurm.cluster import Alone, Slurm, running

SIZE = 12  # three for a test, and those that the tests before have just left


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    if why_missing():
        pytest.skip(why_missing())
    with running(tmp_path_factory.mktemp("slurm"), SIZE) as slurm:
        yield slurm


@pytest.fixture
def slurm(cluster: Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    """With three nodes for this test; the agent in this process finds it."""
    monkeypatch.setenv("SLURM_CONF", cluster.cluster.environment["SLURM_CONF"])
    cluster.take(3)
    yield cluster
    cluster.give_back()


@pytest.fixture
def alone(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Alone]:
    """For what would disturb the tests that share a Slurm. In a short folder: slurmstepd has a socket there."""
    if why_missing():
        pytest.skip(why_missing())
    with ExitStack() as stack:

        def make(size: int, more: str) -> Slurm:
            slurm = stack.enter_context(running(tmp_path_factory.mktemp("one"), size, more))
            monkeypatch.setenv("SLURM_CONF", slurm.cluster.environment["SLURM_CONF"])
            slurm.take(size)
            return slurm

        yield make
