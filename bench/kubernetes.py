"""Measures a recovery on a real Kubernetes, and how long its API takes for a cluster of 1,000 nodes.

The client is measured in a process that has just started, as in a function without an idle environment; the SDK, which
every function loads, is loaded before.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.recovery import recovered_on
from nodeheal.contract.vocabulary import SchedulerKind
from sandbox.client import REPOSITORY
from sandbox.kubernetes.control_plane import ControlPlane

NODES, TURNS = 1_000, 5
_IMAGES = 50  # that a kubelet reports, by default
_CALL = """
import json, sys, time
import botocore.session
url, authority, token = sys.argv[1:]
began = time.perf_counter()
from nodeheal.adapters.kubernetes.api import Endpoint, KubernetesApi
api = KubernetesApi(lambda: Endpoint(url, open(authority).read()), lambda: token)
api.get("/api/v1/nodes?limit=1")
first = time.perf_counter()
listed = sum(1 for _ in api.pages("/api/v1/nodes"))
done = time.perf_counter()
print(json.dumps({"first": first - began, "all": done - first, "listed": listed}))
"""


def measure_kubernetes(latency: str) -> dict[str, float]:
    """Measure on a real Kubernetes: seconds until the node is isolated, and until the job resumes."""
    report = recovered_on(SchedulerKind.KUBERNETES, latency)
    return {
        "fault_to_isolated_s": report["isolated_seconds"],
        "fault_to_first_step_s": report["recovered_seconds"],
    }


def measure_kubernetes_api() -> dict[str, float]:
    """Return the milliseconds of a first call, and the seconds for 1,000 nodes in pages."""
    with tempfile.TemporaryDirectory() as directory, ControlPlane(Path(directory)) as plane:
        for number in range(NODES):
            plane.api.create("/api/v1/nodes", _node(number))
        plane.kubectl("create", "clusterrole", "nodes", "--verb=list", "--resource=nodes")
        plane.kubectl(
            "create", "clusterrolebinding", "nodes", "--clusterrole=nodes", "--serviceaccount=default:default"
        )
        authority, token = str(plane.authority.files.certificate), plane.token("default")
        taken = [_called(plane.server, authority, token) for _ in range(TURNS)]
    return {
        "first_call_ms": round(1000 * statistics.median(each["first"] for each in taken)),
        "thousand_nodes_s": round(statistics.median(each["all"] for each in taken), 3),
    }


def _called(url: str, authority: str, token: str) -> dict[str, float]:
    command = [sys.executable, "-c", _CALL, url, authority, token]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    if figures["listed"] != NODES:
        raise RuntimeError(f"{figures['listed']} nodes were listed, not {NODES}")
    return figures


def _node(number: int) -> dict[str, object]:
    """Return a Node object about as large as a kubelet's."""
    image = {"names": [f"registry.example.com/team/image-{'x' * 40}@sha256:{'0' * 64}"], "sizeBytes": 10**9}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{number}", "labels": {f"example.com/label-{k}": "value" for k in range(20)}},
        "spec": {"providerID": f"aws:///us-east-1a/i-{number:017x}"},
        "status": {"images": [image] * _IMAGES},
    }
