"""The page on which a job of Kubernetes is created from its manifest, on nodes that are chosen or that it finds."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from nodeheal.adapters.kubernetes.manifests import warnings_of
from nodeheal.api import records
from nodeheal.api.pages import Page
from nodeheal.api.yaml_tree import YamlRefused, read_tree
from nodeheal.console.asked import NODES_OFFERED, first_node
from nodeheal.console.roles import AnyAct
from nodeheal.contract.vocabulary import ActKind, SchedulerKind
from nodeheal.domain.errors import NodehealError

if TYPE_CHECKING:
    from nodeheal.adapters.kubernetes.manifests import KubernetesManifests
    from nodeheal.api.client import Client
    from nodeheal.console.app import Deployment


class ManifestPages:
    """The handlers of its routes. `find_deployment`: of who asks; `show`: answers with a page; `read_form`: of this
    session; `refuse_unless_allowed`: raises where who asks may not do it.
    """

    def __init__(
        self,
        find_deployment: Callable[[], "Deployment"],
        show: Callable[..., Response],
        read_form: Callable[[Request], Awaitable[dict[str, str]]],
        refuse_unless_allowed: Callable[[AnyAct], None],
    ) -> None:
        self._find_deployment, self._show, self._read_form = find_deployment, show, read_form
        self._refuse_unless_allowed = refuse_unless_allowed

    @property
    def _client(self) -> "Client":
        return self._find_deployment().client

    def routes(self) -> list[Route]:
        """Return every route."""
        return [
            Route("/pools/{pool}/manifest", self._write, methods=["GET"]),
            Route("/pools/{pool}/manifest", self._create, methods=["POST"]),
        ]

    def _write(self, request: Request) -> Response:
        """The empty page, for nodes that the address may name."""
        self._refuse_unless_allowed(ActKind.SUBMIT_JOB)
        return self._page(request, "", request.query_params.getlist("node"))

    async def _create(self, request: Request) -> Response:
        """Have the API server try the manifest, or create the job."""
        self._refuse_unless_allowed(ActKind.SUBMIT_JOB)
        form = await self._read_form(request)
        text, names = form.get("document", ""), form.get("nodes", "").split()
        is_trial, shown = form.get("do") != "create", form.get("cluster", "")
        return await run_in_threadpool(self._answer, request, text, names, shown, is_trial=is_trial)

    def _answer(self, request: Request, text: str, names: list[str], shown: str, *, is_trial: bool) -> Response:
        try:
            manifest = read_tree(text.encode()).value
            warnings = warnings_of(manifest)
            nodes = [records.node(name, self._client.ports) for name in names]
            cluster = self._cluster(request.path_params["pool"])
            if cluster != shown:
                raise ValueError(f"cluster: the pool's nodes are in {cluster} now; look at the page again")
            made = self._manifests().create(cluster, manifest, nodes, is_trial=is_trial)
        except YamlRefused as refused:
            return self._page(request, text, names, status=400, refused=f"line {refused.line}: {refused}")
        except (NodehealError, ValueError) as error:
            return self._page(request, text, names, status=400, refused=str(error))
        if is_trial:
            return self._page(request, text, names, tried=made, warnings=warnings)
        return RedirectResponse("/jobs?did=submit_job", 303)

    def _page(self, request: Request, text: str, names: list[str], status: int = 200, **values: Any) -> Response:
        pool = request.path_params["pool"]
        shown: Mapping[str, Any] = {"refused": "", "tried": "", "warnings": (), **values}
        return self._show(
            request,
            "manifest.html",
            status,
            pool=pool,
            cluster=self._cluster(pool),
            text=text,
            chosen=names,
            offered=self._client.nodes([pool], page=Page(NODES_OFFERED)).rows,
            **shown,
        )

    def _cluster(self, pool: str) -> str:
        """The cluster of Kubernetes that the pool's nodes are in. Raises ValueError."""
        node = first_node(self._client, pool)
        if node is None or node.cluster.kind is not SchedulerKind.KUBERNETES:
            raise ValueError(f"pool: {pool} has no nodes in a cluster of Kubernetes")
        return node.cluster.name

    def _manifests(self) -> "KubernetesManifests":
        manifests = self._find_deployment().manifests
        if manifests is None:
            raise ValueError("not from here: use kubectl, or `nodeheal console` on your own machine")
        return manifests()
