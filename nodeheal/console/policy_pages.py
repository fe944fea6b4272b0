"""The pages of the policy: the document in force, a change with what it means, its replay, and earlier versions."""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from nodeheal.adapters.aws.policy_documents import Deployed, NotDeployed, PolicyDocuments, document_of
from nodeheal.adapters.memory.ports import memory_ports
from nodeheal.api import policy_queries, replays
from nodeheal.api.client import Client
from nodeheal.api.policy_views import FaultChange, PolicyDiff, PolicyInForce, Treatment
from nodeheal.console.roles import AnyAct, OwnAct
from nodeheal.domain.errors import Conflict
from nodeheal.domain.policy.policy import PolicyRefused, parse_policy

if TYPE_CHECKING:
    from nodeheal.console.app import Deployment

REPLAYED = timedelta(days=30)
VERSIONS = 20  # of the history: each is two questions to AppConfig
ROWS = 200  # of faults, or of incidents, on one page
LOOK_FIRST = "Not applied yet: this is what it changes. Look at it, then apply."


@dataclass(frozen=True)
class TreatedOtherwise:
    """A fault that would be treated in another way in these pools."""

    fault: str
    name: str
    pools: list[str]
    before: Treatment
    after: Treatment


@dataclass(frozen=True)
class Change:
    """What a text would change. `complaints`: why it cannot be applied; `difference`: None: there is a complaint.

    `older_warnings`: how many more the document in force has; `unknown_pools`: named, and not there; `token`: of
    this text over this document, for a form that applies what was shown.
    """

    is_in_force: bool
    token: str
    complaints: tuple[str, ...] = ()
    difference: PolicyDiff | None = None
    treated: tuple[TreatedOtherwise, ...] = ()
    warnings: tuple[str, ...] = ()
    older_warnings: int = 0
    unknown_pools: tuple[str, ...] = ()


@dataclass(frozen=True)
class PolicyDraft:
    """What a person has typed. `made_from`: the AppConfig version that was in force when they began."""

    text: str
    made_from: int
    why: str = ""


class PolicyPages:
    """The handlers of the policy's routes. `find_deployment`: of who asks; `show`: answers with a page; `read_form`: of
    their session; `refuse_unless_allowed`: refuses a person who may not.
    """

    def __init__(
        self,
        find_deployment: "Callable[[], Deployment]",
        show: Callable[..., Response],
        read_form: Callable[[Request], Awaitable[dict[str, str]]],
        refuse_unless_allowed: Callable[[AnyAct], None],
    ) -> None:
        self._find_deployment, self._refuse_unless_allowed = find_deployment, refuse_unless_allowed
        self._show, self._read_form = show, read_form

    @property
    def _client(self) -> Client:
        return self._find_deployment().client

    def _documents(self) -> PolicyDocuments:
        return self._find_deployment().documents()

    def routes(self) -> list[Route]:
        """Return every route."""
        return [
            Route("/policy", self._edit, methods=["GET"]),
            Route("/policy", self._apply, methods=["POST"]),
            Route("/policy/change", self._compare, methods=["POST"]),
            Route("/policy/replay", self._replay, methods=["POST"]),
            Route("/policy/versions", self._versions),
            Route("/policy/versions/{version:int}", self._preview_rollback, methods=["GET"]),
            Route("/policy/versions/{version:int}", self._roll_back, methods=["POST"]),
        ]

    def _edit(self, request: Request) -> Response:
        """The document in force, to be changed."""
        base = self._documents().base()
        is_new = request.query_params.get("applied") == str(base.version)
        return self._show_editor(request, base, PolicyDraft(_as_edited(base), base.version), is_new=is_new)

    async def _apply(self, request: Request) -> Response:
        """Put the text into force, if it is the one whose change was shown, over the document that it was made from."""
        self._refuse_unless_allowed(OwnAct.POLICY)
        form = await self._read_form(request)

        def apply() -> Response:
            draft, documents = _draft(form), self._documents()
            base = documents.base()
            change = self._change(base, draft.text)
            if change.is_in_force or change.complaints:
                return self._show_editor(request, base, draft, 400 if change.complaints else 200)
            if draft.made_from == base.version and form.get("shown") != change.token:
                return self._show_editor(request, base, draft, 400, error=LOOK_FIRST)
            return self._put_into_force(
                documents, base, draft, partial(documents.apply, draft.text), partial(self._show_editor, request)
            )

        return await run_in_threadpool(apply)

    async def _compare(self, request: Request) -> Response:
        """What the text would change, while it is written."""
        self._refuse_unless_allowed(OwnAct.POLICY)
        form = await self._read_form(request)

        def compare() -> Response:
            draft, base = _draft(form), self._documents().base()
            return self._show(request, "policy_change.html", **self._shown(base, draft))

        return await run_in_threadpool(compare)

    async def _replay(self, request: Request) -> Response:
        """What the last incidents would have become, by the document in force and by the text."""
        self._refuse_unless_allowed(OwnAct.POLICY)
        form = await self._read_form(request)

        def replay() -> Response:
            ports = self._client.ports
            incidents = [row.incident for row in self._client.incidents(ports.clock() - REPLAYED).rows]
            before = policy_queries.readable(self._documents().base().text)
            after = parse_policy(_draft(form).text)
            comparison = replays.compare(replays.recorded(incidents, ports), before, after, memory_ports)
            return self._show(request, "policy_replay.html", replay=comparison, days=REPLAYED.days, most=ROWS)

        return await run_in_threadpool(replay)

    def _versions(self, request: Request) -> Response:
        """What was in force, the newest first."""
        recent = [_view(deployed) for deployed in self._documents().recent(VERSIONS)]
        return self._show(request, "policy_versions.html", recent=recent, most=VERSIONS)

    def _preview_rollback(self, request: Request) -> Response:
        """What rolling back to this version would change."""
        self._refuse_unless_allowed(OwnAct.POLICY)
        documents = self._documents()
        text, base = documents.applied(request.path_params["version"]), documents.base()
        return self._show_version(request, base, PolicyDraft(text, base.version))

    async def _roll_back(self, request: Request) -> Response:
        """Put an earlier version into force again, over the document that was looked at."""
        self._refuse_unless_allowed(OwnAct.POLICY)
        form, version = await self._read_form(request), request.path_params["version"]

        def roll_back() -> Response:
            documents = self._documents()
            draft = replace(_draft(form), text=documents.applied(version))
            base = documents.base()
            if base.is_same(draft.text):
                return self._show_version(request, base, draft)
            return self._put_into_force(
                documents, base, draft, partial(documents.deploy, version), partial(self._show_version, request)
            )

        return await run_in_threadpool(roll_back)

    def _put_into_force(
        self,
        documents: PolicyDocuments,
        base: Deployed,
        draft: PolicyDraft,
        act: Callable[[str, int], Deployed],
        show: Callable[..., Response],
    ) -> Response:
        """Act with the reason, over the document that the draft was made from; or show why not, and the draft."""
        if draft.made_from != base.version:
            return show(base, draft, 409)
        if not draft.why:
            return show(base, draft, 400, error="why: say why; it goes on record with your name")
        try:
            applied = act(f"{self._find_deployment().who}: {draft.why}", draft.made_from)
        except Conflict:  # in the moment since it was read
            return show(documents.base(), draft, 409)
        except NotDeployed as error:
            return show(base, draft, 400, error=str(error))
        return RedirectResponse(f"/policy?applied={applied.version}", 303)

    def _show_editor(
        self,
        request: Request,
        base: Deployed,
        draft: PolicyDraft,
        status: int = 200,
        *,
        error: str = "",
        is_new: bool = False,
    ) -> Response:
        shown = self._shown(base, draft)
        return self._show(request, "policy.html", status, error=error, is_new=is_new, **shown)

    def _show_version(
        self, request: Request, base: Deployed, draft: PolicyDraft, status: int = 200, *, error: str = ""
    ) -> Response:
        target, shown = request.path_params["version"], self._shown(base, draft)
        return self._show(request, "policy_version.html", status, target=target, error=error, **shown)

    def _shown(self, base: Deployed, draft: PolicyDraft) -> dict[str, Any]:
        """What each of the pages shows of a change."""
        change = self._change(base, draft.text)
        return {"in_force": _view(base), "draft": draft, "change": change, "most": ROWS}

    def _change(self, base: Deployed, text: str) -> Change:
        token = sha256(f"{base.version} {text}".encode()).hexdigest()
        try:
            new = parse_policy(text)
        except PolicyRefused as refused:
            return Change(base.is_same(text), token, tuple(map(str, refused.complaints)))
        old, known = policy_queries.readable(base.text), self._client.ports.fleet_index.pools()
        difference = policy_queries.diff(old, new)
        warnings, older = policy_queries.warnings(old, new)
        return Change(
            base.is_same(text),
            token,
            difference=difference,
            treated=tuple(_treated_otherwise(difference.faults)),
            warnings=warnings,
            older_warnings=older,
            unknown_pools=tuple(pool for pool in policy_queries.named_pools(new) if pool not in known),
        )


def _as_edited(deployed: Deployed) -> str:
    """The document as `nodeheal policy edit` shows it."""
    return json.dumps(document_of(deployed.text), indent=2) + "\n"


def _view(deployed: Deployed) -> PolicyInForce:
    return policy_queries.in_force(deployed.text, deployed.version, deployed.deployment, deployed.at, deployed.why)


def _treated_otherwise(faults: Iterable[FaultChange]) -> list[TreatedOtherwise]:
    """Pools in which a fault changes alike, on one row."""
    rows: dict[tuple[str, Treatment, Treatment], TreatedOtherwise] = {}
    for change in faults:
        row = TreatedOtherwise(change.fault, change.name, [], change.before, change.after)
        rows.setdefault((change.fault, change.before, change.after), row).pools.append(change.pool)
    return list(rows.values())


def _draft(form: Mapping[str, str]) -> PolicyDraft:
    return PolicyDraft(form.get("document", ""), int(form.get("over", "")), " ".join(form.get("why", "").split()))
