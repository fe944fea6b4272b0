"""Starts the controllers of training jobs: training-operator (PyTorchJob), JobSet, and Kueue.

They run with the admin's rights. Their webhooks are called by address, since there is no network of pods.
"""

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import yaml

from sandbox.kubernetes import programs
from sandbox.kubernetes.api import Api
from sandbox.kubernetes.certificates import Authority, Certificate
from sandbox.kubernetes.control_plane import READY_SECONDS, ControlPlane
from sandbox.slurm import free_ports

# Both are fixed in the programs. training-operator only waits for the file, and serves what is in its TMPDIR.
TRAINING_OPERATOR_CERTIFICATE = Path("/tmp/k8s-webhook-server/serving-certs/tls.crt")
KUEUE_METRICS_CERTIFICATES = Path("/etc/kueue/metrics/certs")

_OFF = "0"  # controller-runtime's word for: no such server
_KUBEFLOW = "kubeflow"
_VALIDATION_OF_PYTORCH_JOBS = "/validate-kubeflow-org-v1-pytorchjob"
_KUEUE_SYSTEM = "kueue-system"
_KUEUE_FRAMEWORKS = ("batch/job", "jobset.x-k8s.io/jobset", "kubeflow.org/pytorchjob")
_KUEUE_WEBHOOKS = ("job", "jobset", "pytorchjob", "clusterqueue", "resourceflavor", "workload", "cohort")
# As JobSet's own deployment narrows its webhooks of pods.
_PODS_OF_JOBSETS = {"matchExpressions": [{"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}]}


def start(plane: ControlPlane) -> None:
    """Start training-operator and JobSet, and wait until they are ready."""
    plane.apply_files(*(programs.manifest(name) for name in programs.CUSTOM_RESOURCES))
    webhooks, health = free_ports(2)
    authority = _start_training_operator(plane, webhooks, health)
    jobset = _start_jobset(plane)
    _wait(plane, "training-operator", health)
    # It says that it is ready before it serves its webhook.
    webhook = Api(f"https://127.0.0.1:{webhooks}", authority.files.certificate)
    plane.daemons.wait(
        lambda: webhook.is_ready(_VALIDATION_OF_PYTORCH_JOBS), "training-operator's webhook answers", READY_SECONDS
    )
    _wait(plane, "JobSet", jobset)


def start_kueue(plane: ControlPlane) -> None:
    """Start Kueue after the other controllers, and wait until it is ready; writes KUEUE_METRICS_CERTIFICATES."""
    plane.apply(_namespace(_KUEUE_SYSTEM))
    plane.apply_files(programs.manifest(programs.KUEUE_RESOURCES))
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    webhooks, health = free_ports(2)
    folder = _serving_folder(plane.folder / "kueue", plane.serving)
    _serving_folder(KUEUE_METRICS_CERTIFICATES, plane.serving)
    configuration = {
        **_manager("config.kueue.x-k8s.io/v1beta2", webhooks, health, folder),
        "integrations": {"frameworks": list(_KUEUE_FRAMEWORKS)},
    }
    arguments = [
        f"--config={_write(plane.folder / 'kueue.json', configuration)}",
        f"--kubeconfig={plane.admin}",
        "--feature-gates=VisibilityOnDemand=false",  # an API server of its own, which has a fixed port
    ]
    environment = {"POD_NAMESPACE": _KUEUE_SYSTEM, "KUBECONFIG": str(plane.admin)}
    plane.daemons.start(programs.program("kueue"), arguments, environment)
    _wait(plane, "Kueue", health)
    wanted = {f"{kind}{name}.kb.io" for name in _KUEUE_WEBHOOKS for kind in "mv"}
    plane.apply(*_webhooks(plane, programs.KUEUE_WEBHOOKS, webhooks, wanted))


def _start_training_operator(plane: ControlPlane, webhooks: int, health: int) -> Authority:
    """Start training-operator for PyTorchJobs at the ports of its webhooks and its probes; returns its authority."""
    folder = plane.folder / "training-operator"
    authority = Authority(folder / "authority", "training-operator-ca", is_rsa=True)
    serving = authority.issue("server", "training-operator", (), ("training-operator.kubeflow.svc", "127.0.0.1"))
    _serving_folder(folder / "k8s-webhook-server" / "serving-certs", serving)
    if not TRAINING_OPERATOR_CERTIFICATE.exists():
        TRAINING_OPERATOR_CERTIFICATE.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(serving.certificate, TRAINING_OPERATOR_CERTIFICATE)
    plane.apply(
        _namespace(_KUBEFLOW), _training_operator_secret(authority, serving), _training_operator_webhooks(webhooks)
    )
    arguments = [
        f"--kubeconfig={plane.admin}",
        "--enable-scheme=pytorchjob",
        f"--health-probe-bind-address=127.0.0.1:{health}",
        f"--metrics-bind-address={_OFF}",
        f"--webhook-server-port={webhooks}",
    ]
    environment = {"MY_POD_NAMESPACE": _KUBEFLOW, "MY_POD_NAME": "training-operator-0", "TMPDIR": str(folder)}
    plane.daemons.start(programs.program("training-operator"), arguments, environment)
    return authority


def _training_operator_secret(authority: Authority, serving: Certificate) -> dict[str, Any]:
    """Return the secret in which training-operator looks for its certificates, and would else write its own."""
    files = {
        "ca.crt": authority.files.certificate,
        "ca.key": authority.files.key,
        "tls.crt": serving.certificate,
        "tls.key": serving.key,
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "training-operator-webhook-cert", "namespace": _KUBEFLOW},
        "data": {name: _base64(path) for name, path in files.items()},
    }


def _training_operator_webhooks(port: int) -> dict[str, Any]:
    """Return the validation of PyTorchJobs, into which training-operator writes its authority."""
    rule = {
        "apiGroups": ["kubeflow.org"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["pytorchjobs"],
    }
    webhook = {
        "name": "validator.pytorchjob.training-operator.kubeflow.org",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": f"https://127.0.0.1:{port}{_VALIDATION_OF_PYTORCH_JOBS}"},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "rules": [rule],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "validator.training-operator.kubeflow.org"},
        "webhooks": [webhook],
    }


def _start_jobset(plane: ControlPlane) -> int:
    """Start JobSet's controller with its webhooks; returns the port of its probes."""
    webhooks, health = free_ports(2)
    folder = _serving_folder(plane.folder / "jobset", plane.serving)
    configuration = _manager("config.jobset.x-k8s.io/v1alpha1", webhooks, health, folder)
    arguments = [
        f"--config={_write(plane.folder / 'jobset.json', configuration)}",
        f"--kubeconfig={plane.admin}",
    ]
    plane.daemons.start(programs.program("jobset-controller"), arguments)
    wanted = {f"{kind}{name}.kb.io" for name in ("jobset", "pod") for kind in "mv"}
    plane.apply(*_webhooks(plane, programs.JOBSET_WEBHOOKS, webhooks, wanted))
    return health


def _webhooks(plane: ControlPlane, name: str, port: int, wanted: set[str]) -> list[dict[str, Any]]:
    """Return the webhooks of a module's manifest that are wanted, called at a port of this machine."""
    bundle = _base64(plane.authority.files.certificate)
    configurations = list(yaml.safe_load_all(programs.manifest(name).read_text("utf-8")))
    for configuration in configurations:
        webhooks = [webhook for webhook in configuration["webhooks"] if webhook["name"] in wanted]
        for webhook in webhooks:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}
            if webhook["name"].endswith("pod.kb.io"):
                webhook["objectSelector"] = _PODS_OF_JOBSETS
        configuration["webhooks"] = webhooks
        configuration["metadata"]["name"] = f"{Path(name).stem}-{configuration['kind'].lower()}"
    return configurations


def _manager(version: str, webhooks: int, health: int, certificates: Path) -> dict[str, Any]:
    """Return what the configurations of JobSet and of Kueue have in common."""
    return {
        "apiVersion": version,
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"host": "127.0.0.1", "port": webhooks, "certDir": str(certificates)},
        "metrics": {"bindAddress": _OFF},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
    }


def _serving_folder(folder: Path, serving: Certificate) -> Path:
    """Copy a server's certificate into a folder, under the names that controllers read."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(serving.certificate, folder / "tls.crt")
    shutil.copy(serving.key, folder / "tls.key")
    return folder


def _wait(plane: ControlPlane, name: str, port: int) -> None:
    """Wait until the controller that answers at this port is ready."""
    probe = Api(f"http://127.0.0.1:{port}", plane.authority.files.certificate)
    plane.daemons.wait(lambda: probe.is_ready("/readyz"), f"{name} is ready", READY_SECONDS)


def _namespace(name: str) -> dict[str, Any]:
    """Return a namespace's object."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _write(path: Path, configuration: dict[str, Any]) -> Path:
    """Write a configuration as JSON, which is YAML, and return its path."""
    path.write_text(json.dumps(configuration), "utf-8")
    return path


def _base64(path: Path) -> str:
    """Return a file as a Secret or a webhook holds it."""
    return base64.b64encode(path.read_bytes()).decode()
