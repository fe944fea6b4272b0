"""Starts a Kubernetes control plane on 127.0.0.1: etcd, API server, controller manager and scheduler."""

import json
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import urllib3

from sandbox.kubernetes import programs
from sandbox.kubernetes.api import Api, ApiError
from sandbox.kubernetes.certificates import Authority, Certificate
from sandbox.kubernetes.daemons import Daemons
from sandbox.slurm import free_ports

ADMIN = "admin"
ADMINS = "system:masters"
NODES = "system:nodes"
READY_SECONDS = 120.0
_ISSUER = "https://kubernetes.default.svc"
_KUBECTL_SECONDS = 60.0


class KubectlError(RuntimeError):
    """kubectl has failed; the text is what it says."""


class ControlPlane:
    """A control plane that runs as long as its `with` block."""

    def __init__(self, folder: Path, grace_seconds: int = 6, authenticator: Path | None = None) -> None:
        """`folder`: for all of its files. `grace_seconds`: a node that is silent for so long is Unknown.

        `authenticator`: the file that says who judges tokens that no service account has.
        """
        self.folder = folder.absolute()
        self._authenticator = authenticator
        self.daemons = Daemons(self.folder)
        self._grace_seconds = grace_seconds
        self._users = 0
        self._etcd, self._etcd_peers, self._api, self._controllers, self._scheduler = free_ports(5)
        self.server = f"https://127.0.0.1:{self._api}"

    def __enter__(self) -> Self:
        """Start the programs and wait until they are ready."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.authority = Authority(self.folder / "certificates")
        self.serving = self.authority.issue("server", "kube-apiserver", (), ("127.0.0.1", "localhost"))
        self._service_accounts = Authority(self.folder / "service-accounts").files.key
        self._front_proxy = Authority(self.folder / "front-proxy", "front-proxy-ca").files.certificate
        self.admin = self.user(ADMIN, [ADMINS])
        self.api = self.api_of(ADMIN, [ADMINS])
        try:
            self._start()
        except BaseException:
            self.daemons.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the programs."""
        self.daemons.end()

    def user(self, name: str, groups: Sequence[str] = ()) -> Path:
        """Issue a client certificate for a user in these groups; returns its kubeconfig."""
        return self._kubeconfig(name, self.certificate(name, groups))

    def api_of(self, name: str, groups: Sequence[str] = ()) -> Api:
        """Return the API as a user in these groups sees it."""
        return Api(self.server, self.authority.files.certificate, self.certificate(name, groups))

    def api_of_node(self, name: str) -> Api:
        """Return the API as the kubelet of a node sees it."""
        return self.api_of(f"system:node:{name}", [NODES])

    def api_with_token(self, token: str) -> Api:
        """Return the API as the bearer of a token sees it."""
        return Api(self.server, self.authority.files.certificate, token=token)

    def certificate(self, name: str, groups: Sequence[str] = ()) -> Certificate:
        """Issue a client certificate for a user in these groups."""
        self._users += 1
        return self.authority.issue(f"user-{self._users}", name, groups)

    def token(self, service_account: str, namespace: str = "default", pod: str = "", node: str = "") -> str:
        """Issue a token of a service account, bound to the pod or to the node if one is named."""
        kind, bound_to = ("Pod", pod) if pod else ("Node", node)
        options = [f"--bound-object-kind={kind}", f"--bound-object-name={bound_to}"] if bound_to else []
        return self.kubectl("create", "token", service_account, f"--namespace={namespace}", *options).strip()

    def kubectl(
        self, *arguments: str, stdin: str | None = None, user: Path | None = None, takes: Sequence[int] = (0,)
    ) -> str:
        """Run kubectl as the admin, or by another user's kubeconfig; returns what it prints.

        Raises KubectlError, with what it says, for an exit code that is not among `takes`.
        """
        return run_kubectl(user or self.admin, arguments, stdin, takes)

    def apply(self, *objects: dict[str, Any]) -> None:
        """Create or change these objects, as `kubectl apply` does."""
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def apply_files(self, *paths: Path) -> None:
        """Create or change what is in these files and folders, on the server's side, which takes the largest too."""
        files = [f"--filename={path}" for path in paths]
        self.kubectl("apply", "--server-side", *files)

    def _start(self) -> None:
        """Start each program once those are ready that it needs."""
        self._start_etcd()
        self._start_api_server()
        self.daemons.wait(lambda: self.api.is_ready("/readyz"), "the API server is ready", READY_SECONDS)
        self._start_controller_manager()
        self._start_scheduler()
        scheduler = Api(f"https://127.0.0.1:{self._scheduler}", self.authority.files.certificate)
        self.daemons.wait(self._has_service_account, "the controllers are at work", READY_SECONDS)
        self.daemons.wait(lambda: scheduler.is_ready("/readyz"), "the scheduler is ready", READY_SECONDS)

    def _start_etcd(self) -> None:
        """Start etcd, which does not flush to the disk: nothing here outlives the control plane."""
        clients, peers = (f"http://127.0.0.1:{port}" for port in (self._etcd, self._etcd_peers))
        arguments = [
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync",
        ]
        self.daemons.start(programs.program("etcd"), arguments)

    def _start_api_server(self) -> None:
        """Start the API server with RBAC, the Node authorizer and NodeRestriction."""
        arguments = [
            f"--etcd-servers=http://127.0.0.1:{self._etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._api}",
            *self._serving_flags(),
            f"--client-ca-file={self.authority.files.certificate}",
            f"--requestheader-client-ca-file={self._front_proxy}",
            "--requestheader-allowed-names=front-proxy-client",
            "--allow-privileged=true",  # the agent is
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--service-account-issuer={_ISSUER}",
            f"--service-account-key-file={self._service_accounts}",
            f"--service-account-signing-key-file={self._service_accounts}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--endpoint-reconciler-type=none",  # no Service leads to the API server: there is no network of pods
            *([f"--authentication-token-webhook-config-file={self._authenticator}"] if self._authenticator else []),
        ]
        self.daemons.start(programs.program("kube-apiserver"), arguments)

    def _start_controller_manager(self) -> None:
        """Start the controllers, which notice within a second that a node's grace is over."""
        arguments = [
            *self._client_flags("system:kube-controller-manager"),
            *self._serving_flags(),
            "--bind-address=127.0.0.1",
            f"--secure-port={self._controllers}",
            "--leader-elect=false",
            f"--service-account-private-key-file={self._service_accounts}",
            f"--root-ca-file={self.authority.files.certificate}",
            "--use-service-account-credentials=true",
            f"--node-monitor-grace-period={self._grace_seconds}s",
            "--node-monitor-period=1s",
        ]
        self.daemons.start(programs.program("kube-controller-manager"), arguments)

    def _start_scheduler(self) -> None:
        """Start the scheduler."""
        arguments = [
            *self._client_flags("system:kube-scheduler"),
            *self._serving_flags(),
            "--bind-address=127.0.0.1",
            f"--secure-port={self._scheduler}",
            "--leader-elect=false",
        ]
        self.daemons.start(programs.program("kube-scheduler"), arguments)

    def _serving_flags(self) -> list[str]:
        """Return the flags by which a program serves with the control plane's certificate."""
        return [f"--tls-cert-file={self.serving.certificate}", f"--tls-private-key-file={self.serving.key}"]

    def _client_flags(self, user: str) -> list[str]:
        """Return the flags by which a program is this user, and has the API server judge its own callers."""
        kubeconfig = self.user(user)
        flags = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
        return [f"--{flag}={kubeconfig}" for flag in flags]

    def _has_service_account(self) -> bool:
        """Return whether the controllers have made the first service account, without which no pod is admitted."""
        with suppress(ApiError, urllib3.exceptions.HTTPError):
            return bool(self.api.get("/api/v1/namespaces/default/serviceaccounts/default"))
        return False

    def _kubeconfig(self, user: str, certificate: Certificate) -> Path:
        """Write the kubeconfig of a user, and return its path."""
        name = "sandbox"
        cluster = {"server": self.server, "certificate-authority": str(self.authority.files.certificate)}
        credentials = {"client-certificate": str(certificate.certificate), "client-key": str(certificate.key)}
        path = certificate.certificate.with_suffix(".kubeconfig")
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": user, "user": credentials}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        }
        path.write_text(json.dumps(config), "utf-8")
        return path


def run_kubectl(
    kubeconfig: Path, arguments: Sequence[str], stdin: str | None = None, takes: Sequence[int] = (0,)
) -> str:
    """Run kubectl by a kubeconfig; returns what it prints. Raises KubectlError for an exit code not among `takes`."""
    done = subprocess.run(
        [str(programs.program("kubectl")), f"--kubeconfig={kubeconfig}", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=_KUBECTL_SECONDS,
        check=False,
    )
    if done.returncode not in takes:
        raise KubectlError(f"kubectl {arguments[0]}: {done.stderr.strip()}")
    return done.stdout
