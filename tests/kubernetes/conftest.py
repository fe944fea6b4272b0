"""One control plane for all tests of this folder in a worker; skipped where its programs are not here."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nodeheal.adapters.kubernetes.access import EksClusters
from sandbox.kubernetes import job_controllers, programs
from sandbox.kubernetes.control_plane import ControlPlane
from tests.kubernetes import eks
from tests.kubernetes.cluster import Cluster


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane without controllers of training jobs."""
    _skip_without(*programs.CONTROL_PLANE)
    folder = tmp_path_factory.mktemp("kubernetes")
    with ExitStack() as stack:
        authenticator = stack.enter_context(eks.authenticator())
        config = authenticator.write_config(folder / "authenticator.json")
        started = stack.enter_context(ControlPlane(folder, authenticator=config))
        started.apply_files(eks.MANIFEST)
        yield started


@pytest.fixture(scope="session")
def plane_with_jobs(plane: ControlPlane) -> ControlPlane:
    """With training-operator and JobSet."""
    _skip_without(*programs.WITH_JOBS)
    job_controllers.start(plane)
    return plane


@pytest.fixture(scope="session")
def plane_with_kueue(plane_with_jobs: ControlPlane) -> ControlPlane:
    """With Kueue, which reads a folder of root's."""
    _skip_without(*programs.WITH_KUEUE)
    try:
        job_controllers.start_kueue(plane_with_jobs)
    except PermissionError as error:
        pytest.skip(f"Kueue reads its certificate where only root writes: {error}")
    return plane_with_jobs


@pytest.fixture
def cluster(plane: ControlPlane, tmp_path: Path) -> Iterator[Cluster]:
    """The control plane, for one test's nodes and objects."""
    with ExitStack() as stack:
        yield Cluster(plane, tmp_path, stack)


def _skip_without(*names: str) -> None:
    if absent := programs.why_missing(*names):
        pytest.skip(absent)


@pytest.fixture
def clusters(plane: ControlPlane) -> EksClusters:
    """What the functions have: the same cluster, by the role whose access entry has nodeheal's group."""
    return eks.clusters(plane)
