"""The console's pages and acts, over the API. It decides nothing: what is shown is a view, what is done is an act."""

import hmac
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pydantic import TypeAdapter
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from nodeheal import __version__
from nodeheal.adapters.aws.finding import DoctorFinding
from nodeheal.adapters.aws.policy_documents import PolicyDocuments
from nodeheal.adapters.kubernetes.manifests import KubernetesManifests
from nodeheal.api import own_acts, submission_queries
from nodeheal.api.acts import new_key
from nodeheal.api.client import Client
from nodeheal.api.incident_views import IncidentView
from nodeheal.api.job_file import JobFileRefused, LineComplaint, parse_job_file
from nodeheal.api.job_log import open_log
from nodeheal.api.lookup import kind_and_name
from nodeheal.api.pages import Page, Rows
from nodeheal.api.questions import open_question
from nodeheal.api.submission_views import PlannedJob
from nodeheal.api.views import Fact, FleetView, NodeRow, SchedulerJobRow
from nodeheal.api.yaml_tree import YamlRefused, read_tree
from nodeheal.console.asked import NODES_OFFERED, SINCE, chosen, first_node, pools_of
from nodeheal.console.doctor_page import DoctorPage
from nodeheal.console.gate import Authenticator, Gate, SignedInPerson, own_address, signed_in_person
from nodeheal.console.job_form import fields_of, text_of
from nodeheal.console.manifest_pages import ManifestPages
from nodeheal.console.policy_pages import PolicyPages
from nodeheal.console.rendering import (
    GROUPS,
    NODE_ACTS,
    SUBJECTS,
    PageWriter,
    address_of,
    attachment,
    label_of,
    with_cursor,
)
from nodeheal.console.report_pages import ReportPages
from nodeheal.console.roles import EVERYTHING, AnyAct, OwnAct
from nodeheal.contract.acts import ACTS, Act, ActDone, Key, RecoveryRequested, SubmitJob
from nodeheal.contract.vocabulary import ActKind, Availability, Ending, Family, IncidentState
from nodeheal.domain.errors import Conflict, NodehealError, NotFound
from nodeheal.domain.faults.catalog import catalog
from nodeheal.domain.jobs.job import ENDED
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.review.review import StateWord

ROWS = 100  # of a list on one page
CELLS = 2_000  # nodes that have an element each; a larger fleet is drawn
CELLS_AT_ONCE = 5_000  # that a drawing asks for
NAMED_CELLS = 60  # so few have room for their names
LOG_LINES = 200  # of each rank
WRITTEN = ("document", "yaml")  # fields of a person's work: it is shown again where a form comes to nothing
FORM_BYTES = 262_144  # a job's file is the largest
GROUPINGS: Mapping[str, Callable[[NodeRow], str]] = {
    "pool": lambda row: row.pool,
    "rack": lambda row: row.rack or "no rack",
    "instance type": lambda row: row.machine or "not known",
    "state": lambda row: row.availability.value,
}
_STATIC = Path(__file__).parent / "static"
_KEY: TypeAdapter[str] = TypeAdapter(Key)


@dataclass(frozen=True)
class Deployment:
    """What the console is about: whose credentials act, and where.

    `in_force`: the policy document, for drills; `in_words`: why something failed, None: it is a fault
    of nodeheal's; `documents`: the policy documents, to change them; `look`: the findings of `nodeheal doctor`, None:
    it is not looked from here; `scheduler_words`: what a node's scheduler says of it now; `scheduler_jobs`: the jobs
    that schedulers of their own run in pools; `manifests`: creates such jobs in Kubernetes, None: not from here;
    `allowed`: the acts that pages offer and routes do not refuse.
    """

    client: Client
    who: str
    where: str
    in_force: Callable[[], RecoveryPolicy]
    in_words: Callable[[Exception], str | None]
    documents: Callable[[], PolicyDocuments]
    look: Callable[[], Iterator[DoctorFinding]] | None = None
    manifests: Callable[[], KubernetesManifests] | None = None
    scheduler_words: Callable[[str], Sequence[Fact]] = lambda node: ()
    scheduler_jobs: Callable[[Sequence[str]], Sequence[SchedulerJobRow]] = lambda pools: ()
    allowed: frozenset[AnyAct] = EVERYTHING


class Console:
    """The handlers of all routes. Each answers with the credentials of the person who asks."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self._pages = PageWriter({"version": __version__})

    @property
    def _person(self) -> SignedInPerson:
        person = signed_in_person()
        assert person is not None, "the gate lets nobody else reach a page"
        return person

    @property
    def _deployment(self) -> Deployment:
        return self._person.deployment

    @property
    def _client(self) -> Client:
        return self._deployment.client

    def routes(self) -> list[Route | Mount]:
        """Return every route."""
        return [
            *self._authenticator.routes(),
            Route("/leave", self._leave, methods=["POST"]),
            Route("/", self._now),
            Route("/incidents", self._incidents),
            Route("/incidents/{incident}", self._incident),
            Route("/incidents/{incident}/export", self._export),
            *ReportPages(lambda: self._client, self._show).routes(),
            Route("/fleet", self._fleet),
            Route("/fleet/cells", self._cells),
            Route("/nodes/{node}", self._node),
            Route("/nodes/{node}/scheduler", self._scheduler),
            Route("/nodes/{node}/drill", self._preview_drill, methods=["GET"]),
            Route("/nodes/{node}/drill", self._drill, methods=["POST"]),
            Route("/pools/{pool}", self._pool),
            Route("/jobs", self._jobs),
            Route("/scheduler-jobs", self._scheduler_jobs),
            Route("/jobs/{job}", self._job),
            Route("/jobs/{job}/logs", self._logs),
            Route("/submit", self._write_job, methods=["GET"]),
            Route("/submit", self._submit, methods=["POST"]),
            Route("/submit/plan", self._plan, methods=["POST"]),
            *ManifestPages(lambda: self._deployment, self._show, self._form, self._refuse_unless_allowed).routes(),
            *PolicyPages(lambda: self._deployment, self._show, self._form, self._refuse_unless_allowed).routes(),
            *DoctorPage(lambda: self._deployment.look, self._show).routes(),
            Route("/search", self._search),
            Route("/acts/{act}", self._ask, methods=["GET"]),
            Route("/acts/{act}", self._do, methods=["POST"]),
            Mount("/static", StaticFiles(directory=_STATIC)),
        ]

    async def _leave(self, request: Request) -> Response:
        await self._form(request)
        return self._authenticator.sign_out()

    def _now(self, request: Request) -> Response:
        return self._show(request, "now.html", fleet=self._client.fleet())

    def _incidents(self, request: Request) -> Response:
        asked = request.query_params
        since = chosen(asked.get("since", "7d"), SINCE, "since")
        words = [StateWord(chosen(word, list(StateWord), "state")) for word in asked.getlist("state") if word]
        pools = pools_of(request)
        begin = self._client.ports.clock() - SINCE[since]
        rows = self._client.incidents(begin, pools, frozenset(words), Page(ROWS, asked.get("after", "")))
        return self._show(
            request,
            "incidents.html",
            found=rows,
            chosen={"since": since, "states": words, "pools": pools},
            sinces=list(SINCE),
            words=list(StateWord),
            pools=self._known_pools(),
        )

    def _incident(self, request: Request) -> Response:
        view = self._client.incident(request.path_params["incident"])
        job = self._client.ports.jobs.get(view.job_id) if view.job_id else None
        return self._show(
            request,
            "incident.html",
            incident=view,
            keys=_keys(view),
            is_theirs=_is_theirs(view),
            checkpoint=job.found if job else None,
        )

    def _export(self, request: Request) -> Response:
        """The incident as a file, for a ticket or a colleague."""
        view = self._client.incident(request.path_params["incident"])
        return attachment(view.model_dump_json(indent=2), "application/json", f"{view.incident_id}.json")

    def _fleet(self, request: Request) -> Response:
        rows, by = self._nodes(request, Page(CELLS))
        cells: dict[str, list[NodeRow]] = {}
        for row in rows.rows:
            cells.setdefault(GROUPINGS[by](row), []).append(row)
        return self._show(
            request,
            "fleet.html",
            cells=cells,
            is_small=len(rows.rows) <= NAMED_CELLS,
            is_drawn=rows.next is not None,
            chosen={"groups": request.query_params.getlist("group"), "pools": pools_of(request), "by": by},
            pools=self._known_pools(),
            by=list(GROUPINGS),
        )

    def _cells(self, request: Request) -> Response:
        """Part of a large fleet, for its drawing: each node with group and state; and the address of the next part."""
        rows, by = self._nodes(request, Page(CELLS_AT_ONCE, request.query_params.get("after", "")))
        following = with_cursor(request.query_params.multi_items(), rows.next) if rows.next else None
        nodes = [(GROUPINGS[by](row), row.node, row.availability) for row in rows.rows]
        page = {"nodes": nodes, "next": f"{request.url.path}?{following}" if following else None}
        return JSONResponse(page, headers={"Cache-Control": "private, no-store"})

    def _nodes(self, request: Request, page: Page) -> tuple[Rows[NodeRow], str]:
        """The nodes that the address asks for, and by what they are grouped."""
        asked = request.query_params
        groups = [chosen(group, GROUPS, "group") for group in asked.getlist("group") if group]
        words: list[Availability] = sorted({word for group in groups for word in GROUPS[group]})
        return self._client.nodes(pools_of(request), words, page), chosen(asked.get("by", "pool"), GROUPINGS, "by")

    def _node(self, request: Request) -> Response:
        return self._show(request, "node.html", node=self._client.node(request.path_params["node"]), acts=NODE_ACTS)

    def _scheduler(self, request: Request) -> Response:
        """The part of a node's page that asks its scheduler, which takes longer than to read our own records."""
        node = request.path_params["node"]
        return self._show(request, "scheduler.html", node=node, facts=self._deployment.scheduler_words(node))

    def _preview_drill(self, request: Request) -> Response:
        """Say what would follow if the node reported this Xid."""
        self._refuse_unless_allowed(OwnAct.DRILL)
        node, xid = request.path_params["node"], _xid(request.query_params.get("xid", "79"))
        facts: tuple[Fact, ...] = ()
        refused = ""
        try:
            drill = own_acts.preview_drill(
                node, own_acts.kernel_line(xid, None), self._client.ports, self._deployment.in_force()
            )
            facts = drill.consequences.facts
        except (Conflict, ValueError) as error:
            refused = str(self._deployment.in_words(error))
        xids = {code: row.name for (family, code, _), row in catalog().items() if family == Family.xid}
        return self._show(request, "drill.html", node=node, xid=xid, facts=facts, refused=refused, xids=xids)

    async def _drill(self, request: Request) -> Response:
        self._refuse_unless_allowed(OwnAct.DRILL)
        form, node = await self._form(request), request.path_params["node"]
        why = " ".join(_needed(form, "why").split())

        def begin() -> None:
            policy, fault = self._deployment.in_force(), own_acts.kernel_line(_xid(_needed(form, "xid")), None)
            drill = own_acts.preview_drill(node, fault, self._client.ports, policy)
            own_acts.begin_drill(drill, f"{self._deployment.who}: {why}", self._client.ports, policy)

        await run_in_threadpool(begin)
        return RedirectResponse(f"{address_of('node', node)}?did=drill", 303)

    def _pool(self, request: Request) -> Response:
        fleet: FleetView = self._client.fleet([request.path_params["pool"]])
        return self._show(request, "pool.html", fleet=fleet, pool=fleet.pools[0])

    def _jobs(self, request: Request) -> Response:
        asked, pools = request.query_params, pools_of(request)
        is_live = chosen(asked.get("show", "live"), ("live", "all"), "show") == "live"
        rows = self._client.jobs(pools, live_only=is_live, page=Page(ROWS, asked.get("after", "")))
        return self._show(request, "jobs.html", found=rows, is_live=is_live, chosen=pools, pools=self._known_pools())

    def _scheduler_jobs(self, request: Request) -> Response:
        """The part of the list of jobs that asks schedulers of their own, which takes longer than our own records."""
        return self._show(request, "scheduler_jobs.html", rows=self._deployment.scheduler_jobs(pools_of(request)))

    def _job(self, request: Request) -> Response:
        view = self._client.job(request.path_params["job"])
        acts = (ActKind.RESTART_JOB,) if view.state in ENDED else (ActKind.STOP_JOB,)
        return self._show(request, "job.html", job=view, acts=tuple(dict.fromkeys((*view.acts, *acts))))

    def _logs(self, request: Request) -> Response:
        """The newest lines of a run, of one rank or all."""
        name, asked, ports = request.path_params["job"], request.query_params, self._client.ports
        job = ports.jobs.get(name)
        if job is None:
            raise NotFound(f"no job {name} is known")
        run, rank = (_count(asked.get(field, ""), field) for field in ("run", "rank"))
        log = open_log(name, ports, ports.logs_of(job), run, rank)
        return self._show(
            request,
            "logs.html",
            job=name,
            log=log,
            lines=log.newest(LOG_LINES),
            chosen={"run": asked.get("run", ""), "rank": asked.get("rank", "")},
        )

    def _write_job(self, request: Request) -> Response:
        """The empty form, or one with where the job is to run: `?pool=a&only_nodes=…`. What runs is never in a link."""
        self._refuse_unless_allowed(ActKind.SUBMIT_JOB)
        asked = request.query_params
        given = {name: "\n".join(asked.getlist(name)) for name in ("pool", "only_nodes") if name in asked}
        return self._show_job(request, text_of(given) if given else "")

    async def _plan(self, request: Request) -> Response:
        """What the submission would do now, and the other side of the page: the file of a form, or the form of a file.

        The form's fields begin with `f.`; the file is `yaml`. `from` says which of the two was changed last.
        """
        self._refuse_unless_allowed(ActKind.SUBMIT_JOB)
        form = await self._form(request)
        is_of_form = form.get("from") == "form"
        return await run_in_threadpool(
            self._show_job, request, _job_text(form), template="plan.html", is_of_form=is_of_form
        )

    async def _submit(self, request: Request) -> Response:
        """Have the job started, once."""
        self._refuse_unless_allowed(ActKind.SUBMIT_JOB)
        form = await self._form(request)
        text, key = _job_text(form), _KEY.validate_python(form.get("key", ""))
        try:
            act = SubmitJob(spec=parse_job_file(text.encode()))
            done = await run_in_threadpool(self._client.do, act, key)
        except (JobFileRefused, NotFound, Conflict) as error:
            status = 409 if isinstance(error, Conflict) else 400
            return await run_in_threadpool(self._show_job, request, text, status, error=str(error))
        return self._after(ActKind.SUBMIT_JOB, address_after(done, act))

    def _show_job(
        self,
        request: Request,
        text: str,
        status: int = 200,
        *,
        template: str = "submit.html",
        error: str = "",
        is_of_form: bool = False,
    ) -> Response:
        plan, complaints = self._planned(text)
        values = _values_of(text)
        pool = (values or {}).get("pool", "")
        pools = self._known_pools()
        offered = self._client.nodes([pool], page=Page(NODES_OFFERED)).rows if pool in pools else ()
        first = first_node(self._client, pool) if offered else None
        return self._show(
            request,
            template,
            status,
            fields=fields_of(values or {}),
            is_readable=values is not None,
            text=text,
            plan=plan,
            complaints=complaints,
            error=error,
            pools=pools,
            pool=pool,
            scheduler=first.cluster.kind if first else None,
            takes_manifests=self._deployment.manifests is not None,
            offered=offered,
            key=new_key(),
            is_of_form=is_of_form,
        )

    def _planned(self, text: str) -> tuple[PlannedJob | None, list[LineComplaint]]:
        """What the submission would do, or what is wrong with the file. Neither, for an empty file."""
        if not text.strip():
            return None, []
        try:
            spec = parse_job_file(text.encode())
        except JobFileRefused as refused:
            return None, refused.complaints
        try:
            # The copy in the table: this is asked while a person types.
            policy = self._client.read_policy()
            plan = submission_queries.planned(spec, self._client.ports, policy, is_idempotent=False)
        except (NotFound, Conflict, ValueError) as error:
            return None, [LineComplaint(0, "", str(self._deployment.in_words(error)))]
        return plan, []

    def _search(self, request: Request) -> Response:
        """Go to what has this name, or to the page whose address somebody has sent."""
        text = request.query_params.get("q", "").strip()
        if urlsplit(text).netloc:
            return RedirectResponse(_path_of(text), 303)
        return RedirectResponse(address_of(*kind_and_name(text, self._client.ports)), 303)

    def _ask(self, request: Request) -> Response:
        """Say what the act will do, and ask for it."""
        kind = _kind(request)
        self._refuse_unless_allowed(kind)
        subject = request.query_params.get(SUBJECTS[kind], "")
        has_why = "why" in ACTS[kind].model_fields
        given: dict[str, Any] = {SUBJECTS[kind]: subject, **({"why": "a preview"} if has_why else {})}
        facts: tuple[Fact, ...] = ()
        refused, turn = "", None
        try:
            if "turn" in ACTS[kind].model_fields:
                turn = given["turn"] = open_question(subject, self._client.ports).turn
            facts = self._client.preview(ACTS[kind].model_validate(given)).facts
        except (Conflict, ValueError) as error:
            refused = str(self._deployment.in_words(error))
        return self._show(
            request,
            "act.html",
            kind=kind,
            subject=subject,
            turn=turn,
            facts=facts,
            refused=refused,
            has_why=has_why,
            key=new_key(),
            back=address_of(SUBJECTS[kind], subject),
        )

    async def _do(self, request: Request) -> Response:
        """Have it done, once, and go to where its effects are seen."""
        kind = _kind(request)
        self._refuse_unless_allowed(kind)
        form = await self._form(request)
        key = _KEY.validate_python(form.pop("key", ""))
        act = ACTS[kind].model_validate({name: value for name, value in form.items() if value})
        done = await run_in_threadpool(self._client.do, act, key)
        return self._after(kind, address_after(done, act))

    def _refuse_unless_allowed(self, act: AnyAct) -> None:
        """Raises HTTPException where the person's role does not have it: IAM would refuse it, but later."""
        if act not in self._deployment.allowed:
            raise HTTPException(403, f"{self._deployment.who} may look, but may not: {label_of(act)}.")

    @staticmethod
    def _after(kind: ActKind, address: str) -> Response:
        return RedirectResponse(f"{address}?did={kind.value}", 303)

    async def _form(self, request: Request) -> dict[str, str]:
        """The fields of a form of this session's; of several of one name, the lines. Raises HTTPException."""
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > FORM_BYTES:
                raise HTTPException(413, f"The form has more than {FORM_BYTES} bytes.")
        fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
        # A browser sends the lines of a text area with CRLF.
        form = {name: "\n".join(values).replace("\r\n", "\n") for name, values in fields.items()}
        request.state.written = next((form[name] for name in WRITTEN if form.get(name)), "")
        token, own = form.pop("token", ""), self._person.form_token
        if not hmac.compare_digest(token.encode(), own.encode()):
            raise HTTPException(403, "This form is of an earlier session. Load its page again.")
        return form

    def _show(self, request: Request, template: str, status: int = 200, **values: Any) -> Response:
        did = request.query_params.get("did", "")
        label = label_of(ActKind(did)) if did in list(ActKind) else "Drill" if did == "drill" else ""
        of = self._deployment
        hidden = {"/submit": ActKind.SUBMIT_JOB not in of.allowed, "/doctor": of.look is None}
        return self._pages.show(
            request,
            template,
            status,
            who=of.who,
            where=of.where,
            allowed=of.allowed,
            hidden=[address for address, is_hidden in hidden.items() if is_hidden],
            token=self._person.form_token,
            did=label,
            **values,
        )

    def _known_pools(self) -> list[str]:
        return list(self._client.ports.fleet_index.pools())

    def failed(self, request: Request, error: Exception) -> Response:
        """Say what went wrong, and what to do. Raises what is a fault of nodeheal's."""
        if signed_in_person() is None:  # a page has a person's name and the token of their forms
            if isinstance(error, HTTPException):
                return PlainTextResponse(f"{error.detail}\n", error.status_code)
            raise error
        shown = {
            "written": getattr(request.state, "written", ""),
            "back": _path_of(request.headers.get("referer", "")),
        }
        if isinstance(error, HTTPException):
            title = "Not found" if error.status_code == 404 else "Not done"
            return self._show(request, "failed.html", error.status_code, title=title, text=error.detail, **shown)
        text = self._deployment.in_words(error)
        if text is None:
            raise error
        status, title = 502, "AWS has not done it"
        if isinstance(error, NotFound):
            status, title = 404, "Not found"
        elif isinstance(error, Conflict):
            status, title = 409, "Not possible now"
        elif isinstance(error, (NodehealError, ValueError)):
            status, title = 400, "Not done"
        return self._show(request, "failed.html", status, title=title, text=text, **shown)


def console_app(authenticator: Authenticator, errors: tuple[type[Exception], ...] = ()) -> Starlette:
    """Return the application, which answers people whom the authenticator knows. `errors`: what calls of AWS raise."""
    console = Console(authenticator)
    return Starlette(
        routes=console.routes(),
        middleware=[Middleware(Gate, authenticator=authenticator, errors=errors)],
        exception_handlers=dict.fromkeys((HTTPException, NodehealError, ValueError, *errors), console.failed),
    )


def address_after(done: ActDone, act: Act) -> str:
    """Return the page on which the act's effects are seen."""
    if isinstance(done, RecoveryRequested):
        return address_of("incident", done.incident)
    if isinstance(act, SubmitJob):
        return address_of("job", act.spec.name)
    field = SUBJECTS.get(act.kind)
    return address_of(field, getattr(act, field)) if field else "/"


def _path_of(address: str) -> str:
    """The page that an address names, here."""
    return own_address(urlsplit(address)._replace(scheme="", netloc="", fragment="").geturl())


def _kind(request: Request) -> ActKind:
    known = {kind.path: kind for kind in SUBJECTS}
    kind = known.get(request.url.path)
    if kind is None:
        raise HTTPException(404, "There is no such act here.")
    return kind


def _count(text: str, field: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 6):
        raise ValueError(f"{field}: {text[:40]!r} is no number")
    return int(text)


def _xid(text: str) -> int:
    number = _count(text, "xid")
    if not number:
        raise ValueError("xid: give the code of an NVIDIA Xid, such as 79")
    return number


def _needed(form: Mapping[str, str], field: str) -> str:
    if not form.get(field, "").strip():
        raise ValueError(f"{field}: it is empty")
    return form[field].strip()


def _job_text(form: Mapping[str, str]) -> str:
    """The job's file, as the side of the page says it that was changed last: the other may not have followed yet.

    A file that cannot be read is not written over by the form.
    """
    text, values = form.get("yaml", ""), _values_of(form.get("yaml", ""))
    if form.get("from") != "form" or values is None:
        return text
    return text_of({name[2:]: value for name, value in form.items() if name.startswith("f.")}, values)


def _values_of(text: str) -> Mapping[str, Any] | None:
    """What a job's file holds, whether or not it is a job. None: it cannot be read."""
    if not text.strip():
        return {}
    try:
        values = read_tree(text.encode()).value
    except YamlRefused:
        return None
    return values if isinstance(values, dict) else None


def _keys(view: IncidentView) -> dict[str, str]:
    """The keys of the answers to this very question: however often the page is drawn, each answers once."""
    turn = view.asked.turn if view.asked else ""
    return {
        answer: sha256(f"{view.incident_id} {turn} {answer}".encode()).hexdigest()[:32]
        for answer in ("approve", "refuse")
    }


def _is_theirs(view: IncidentView) -> bool:
    """Whether it was handed to a person who has not closed it."""
    return view.ending is Ending.HANDED_TO_A_HUMAN and view.state is not IncidentState.CLOSED
