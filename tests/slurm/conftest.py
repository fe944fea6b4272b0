"""One Slurm for all tests of this folder; skipped where none is installed."""

from collections.abc import Iterator

import pytest

from sandbox.slurm import why_missing
from tests.slurm.cluster import Slurm, running

SIZE = 42  # a job of 32 nodes, four that may take its place, and those that the test before has just left


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
