"""The console's pages and acts, over the API. It decides nothing: what is shown is a view, what is done is an act."""

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from pydantic import TypeAdapter
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from nodeheal import __version__
from nodeheal.api import incident_reports, own_acts, submission_queries
from nodeheal.api.acts import new_key
from nodeheal.api.client import Client
from nodeheal.api.incident_views import IncidentReport, IncidentView
from nodeheal.api.job_file import JobFileRefused, LineComplaint, parse_job_file
from nodeheal.api.job_log import open_log
from nodeheal.api.lookup import address_of as named
from nodeheal.api.pages import Page
from nodeheal.api.submission_views import PlannedJob
from nodeheal.api.views import Fact, FleetView, NodeRow
from nodeheal.api.yaml_tree import YamlRefused, read_tree
from nodeheal.console.gate import Door, Gate, Visit, visit
from nodeheal.console.job_form import fields_of, text_of
from nodeheal.console.rendering import GROUPS, NODE_ACTS, SUBJECTS, PageWriter, address_of, label_of
from nodeheal.console.roles import EVERYTHING, Deed, OwnAct
from nodeheal.contract.acts import ACTS, Act, ActDone, Key, RecoveryRequested, SubmitJob
from nodeheal.contract.vocabulary import ActKind, Availability, Ending, Family, IncidentState, JobState
from nodeheal.domain.errors import Conflict, NodehealError, NotFound
from nodeheal.domain.faults.catalog import catalog
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.review.review import StateWord

ROWS = 100  # of a list on one page
CELLS = 2_000  # nodes on one page of the fleet
NAMED_CELLS = 60  # so few have room for their names
NODES_OFFERED = 500  # of a pool, for a job
LOG_LINES = 200  # of each rank
FORM_BYTES = 262_144  # a job's file is the largest
SINCE = {"1d": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30), "90d": timedelta(days=90)}
GROUPINGS: Mapping[str, Callable[[NodeRow], str]] = {
    "pool": lambda row: row.pool,
    "rack": lambda row: row.rack or "no rack",
    "state": lambda row: row.availability.value,
}
_STATIC = Path(__file__).parent / "static"
_KEY: TypeAdapter[str] = TypeAdapter(Key)
_OVER = frozenset({JobState.COMPLETED, JobState.CANCELLED, JobState.FAILED})


@dataclass(frozen=True)
class Deployment:
    """What the console is about: whose credentials act, and where.

    `in_force`: the policy document, for drills and submissions; `in_words`: why something failed, None: it is a fault
    of nodeheal's; `may`: what pages offer, and what routes do not refuse.
    """

    client: Client
    who: str
    where: str
    in_force: Callable[[], RecoveryPolicy]
    in_words: Callable[[Exception], str | None]
    may: frozenset[Deed] = EVERYTHING


class Console:
    """The handlers of all routes. Each answers a visit, with the credentials of who has come."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._pages = PageWriter({"version": __version__})

    @property
    def _visit(self) -> Visit:
        now = visit()
        assert now is not None, "the gate lets nobody else reach a page"
        return now

    @property
    def _of(self) -> Deployment:
        return self._visit.deployment

    @property
    def _client(self) -> Client:
        return self._of.client

    def routes(self) -> list[Route | Mount]:
        """Return every route."""
        return [
            *self._door.routes(),
            Route("/leave", self._leave, methods=["POST"]),
            Route("/", self._now),
            Route("/incidents", self._incidents),
            Route("/incidents/{incident}", self._incident),
            Route("/incidents/{incident}/export", self._export),
            Route("/report", self._report),
            Route("/report/export", self._export_report),
            Route("/fleet", self._fleet),
            Route("/nodes/{node}", self._node),
            Route("/nodes/{node}/drill", self._preview_drill, methods=["GET"]),
            Route("/nodes/{node}/drill", self._drill, methods=["POST"]),
            Route("/pools/{pool}", self._pool),
            Route("/jobs", self._jobs),
            Route("/jobs/{job}", self._job),
            Route("/jobs/{job}/logs", self._logs),
            Route("/submit", self._write_job, methods=["GET"]),
            Route("/submit", self._submit, methods=["POST"]),
            Route("/submit/plan", self._plan, methods=["POST"]),
            Route("/search", self._search),
            Route("/acts/{act}", self._ask, methods=["GET"]),
            Route("/acts/{act}", self._do, methods=["POST"]),
            Mount("/static", StaticFiles(directory=_STATIC)),
        ]

    async def _leave(self, request: Request) -> Response:
        await self._form(request)
        return self._door.leave()

    def _now(self, request: Request) -> Response:
        return self._show(request, "now.html", fleet=self._client.fleet())

    def _incidents(self, request: Request) -> Response:
        asked = request.query_params
        since = _chosen(asked.get("since", "7d"), SINCE, "since")
        words = [StateWord(_chosen(word, list(StateWord), "state")) for word in asked.getlist("state") if word]
        pools = _pools(request)
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
        return self._show(request, "incident.html", incident=view, keys=_keys(view), is_theirs=_is_theirs(view))

    def _export(self, request: Request) -> Response:
        """The incident as a file, for a ticket or a colleague."""
        view = self._client.incident(request.path_params["incident"])
        headers = {"Content-Disposition": f'attachment; filename="{view.incident_id}.json"'}
        return Response(view.model_dump_json(indent=2), media_type="application/json", headers=headers)

    def _report(self, request: Request) -> Response:
        """What the incidents of a time add up to."""
        report = self._reported(request)
        return self._show(request, "report.html", report=report, sinces=list(SINCE), pools=self._known_pools())

    def _export_report(self, request: Request) -> Response:
        """The same as a file, with every incident."""
        report = self._reported(request)
        headers = {"Content-Disposition": f'attachment; filename="nodeheal-{report.since}.json"'}
        return Response(report.model_dump_json(indent=2), media_type="application/json", headers=headers)

    def _reported(self, request: Request) -> IncidentReport:
        since, pools = _chosen(request.query_params.get("since", "30d"), SINCE, "since"), _pools(request)
        rows = self._client.incidents(self._client.ports.clock() - SINCE[since], pools).rows
        pool = pools[0] if pools else None
        return incident_reports.report([row.incident for row in rows], self._client.ports, since, pool)

    def _fleet(self, request: Request) -> Response:
        asked, pools = request.query_params, _pools(request)
        groups = [_chosen(group, GROUPS, "group") for group in asked.getlist("group") if group]
        by = _chosen(asked.get("by", "pool"), GROUPINGS, "by")
        words: list[Availability] = sorted({word for group in groups for word in GROUPS[group]})
        rows = self._client.nodes(pools, words, Page(CELLS, asked.get("after", "")))
        cells: dict[str, list[NodeRow]] = {}
        for row in rows.rows:
            cells.setdefault(GROUPINGS[by](row), []).append(row)
        chosen = {"groups": groups, "pools": pools, "by": by}
        return self._show(
            request,
            "fleet.html",
            cells=cells,
            is_small=len(rows.rows) <= NAMED_CELLS,
            next=rows.next,
            chosen=chosen,
            pools=self._known_pools(),
            by=list(GROUPINGS),
        )

    def _node(self, request: Request) -> Response:
        return self._show(request, "node.html", node=self._client.node(request.path_params["node"]), acts=NODE_ACTS)

    def _preview_drill(self, request: Request) -> Response:
        """Say what would follow if the node reported this Xid."""
        self._refuse_unless_may(OwnAct.DRILL)
        node, xid = request.path_params["node"], _xid(request.query_params.get("xid", "79"))
        facts: tuple[Fact, ...] = ()
        refused = ""
        try:
            drill = own_acts.preview_drill(
                node, own_acts.kernel_line(xid, None), self._client.ports, self._of.in_force()
            )
            facts = drill.consequences.facts
        except (Conflict, ValueError) as error:
            refused = str(self._of.in_words(error))
        xids = {code: row.name for (family, code, _), row in catalog().items() if family == Family.xid}
        return self._show(request, "drill.html", node=node, xid=xid, facts=facts, refused=refused, xids=xids)

    async def _drill(self, request: Request) -> Response:
        self._refuse_unless_may(OwnAct.DRILL)
        form, node = await self._form(request), request.path_params["node"]
        why = " ".join(_needed(form, "why").split())

        def begin() -> None:
            policy, fault = self._of.in_force(), own_acts.kernel_line(_xid(_needed(form, "xid")), None)
            drill = own_acts.preview_drill(node, fault, self._client.ports, policy)
            own_acts.begin_drill(drill, f"{self._of.who}: {why}", self._client.ports, policy)

        await run_in_threadpool(begin)
        return RedirectResponse(f"{address_of('node', node)}?did=drill", 303)

    def _pool(self, request: Request) -> Response:
        fleet: FleetView = self._client.fleet([request.path_params["pool"]])
        return self._show(request, "pool.html", fleet=fleet, pool=fleet.pools[0])

    def _jobs(self, request: Request) -> Response:
        asked, pools = request.query_params, _pools(request)
        is_live = _chosen(asked.get("show", "live"), ("live", "all"), "show") == "live"
        rows = self._client.jobs(pools, live_only=is_live, page=Page(ROWS, asked.get("after", "")))
        return self._show(request, "jobs.html", found=rows, is_live=is_live, chosen=pools, pools=self._known_pools())

    def _job(self, request: Request) -> Response:
        view = self._client.job(request.path_params["job"])
        acts = (ActKind.RESTART_JOB,) if view.state in _OVER else (ActKind.STOP_JOB,)
        return self._show(request, "job.html", job=view, acts=tuple(dict.fromkeys((*view.acts, *acts))))

    def _logs(self, request: Request) -> Response:
        """The newest lines of a run, of one rank or all."""
        name, asked, ports = request.path_params["job"], request.query_params, self._client.ports
        job = ports.jobs.get(name)
        if job is None:
            raise NotFound(f"no job {name} is known")
        run, rank = (_count(asked.get(field, ""), field) for field in ("run", "rank"))
        log = open_log(name, ports, ports.logs_of(job), run, rank)
        chosen = {"run": asked.get("run", ""), "rank": asked.get("rank", "")}
        return self._show(request, "logs.html", job=name, log=log, lines=log.newest(LOG_LINES), chosen=chosen)

    def _write_job(self, request: Request) -> Response:
        """The empty form, or one with what the address says: `?pool=a&only_nodes=…` from the fleet."""
        self._refuse_unless_may(ActKind.SUBMIT_JOB)
        asked = request.query_params
        given = {name: "\n".join(asked.getlist(name)) for name in asked}
        return self._show_job(request, text_of(given) if given else "")

    async def _plan(self, request: Request) -> Response:
        """What the submission would do now, and the other side of the page: the file of a form, or the form of a file.

        The form's fields begin with `f.`; the file is `yaml`. `from` says which of the two was changed.
        """
        self._refuse_unless_may(ActKind.SUBMIT_JOB)
        form = await self._form(request)
        is_of_form = form.get("from") == "form"
        if is_of_form:
            text = text_of({name[2:]: value for name, value in form.items() if name.startswith("f.")})
        else:
            text = form.get("yaml", "")
        return await run_in_threadpool(self._show_job, request, text, template="plan.html", is_of_form=is_of_form)

    async def _submit(self, request: Request) -> Response:
        """Have the job of the file started, once."""
        self._refuse_unless_may(ActKind.SUBMIT_JOB)
        form = await self._form(request)
        text, key = form.get("yaml", ""), _KEY.validate_python(form.get("key", ""))
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
        try:
            values = read_tree(text.encode()).value
        except YamlRefused:
            values = {}
        pool = values.get("pool", "") if isinstance(values, Mapping) else ""
        pools = self._known_pools()
        offered = self._client.nodes([pool], page=Page(NODES_OFFERED)).rows if pool in pools else ()
        return self._show(
            request,
            template,
            status,
            fields=fields_of(values if isinstance(values, Mapping) else {}),
            text=text,
            plan=plan,
            complaints=complaints,
            error=error,
            pools=pools,
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
            plan = submission_queries.planned(spec, self._client.ports, self._of.in_force(), is_idempotent=False)
        except (NotFound, Conflict, ValueError) as error:
            return None, [LineComplaint(0, "", str(self._of.in_words(error)))]
        return plan, []

    def _search(self, request: Request) -> Response:
        """Go to what has this name."""
        page, name = named(request.query_params.get("q", "").strip(), self._client.ports)
        return RedirectResponse(address_of(page.removesuffix("s"), name), 303)

    def _ask(self, request: Request) -> Response:
        """Say what the act will do, and ask for it."""
        kind = _kind(request)
        self._refuse_unless_may(kind)
        subject = request.query_params.get(SUBJECTS[kind], "")
        has_why = "why" in ACTS[kind].model_fields
        given: dict[str, Any] = {SUBJECTS[kind]: subject, **({"why": "a preview"} if has_why else {})}
        facts: tuple[Fact, ...] = ()
        refused, turn = "", None
        try:
            if "turn" in ACTS[kind].model_fields:
                turn = given["turn"] = self._turn(subject)
            facts = self._client.preview(ACTS[kind].model_validate(given)).facts
        except (Conflict, ValueError) as error:
            refused = str(self._of.in_words(error))
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

    def _turn(self, incident: str) -> int:
        """The turn of the question that stands."""
        asked = self._client.incident(incident).asked
        if asked is None:
            raise Conflict(f"{incident} asks nothing now")
        return asked.turn

    async def _do(self, request: Request) -> Response:
        """Have it done, once, and go to where its effects are seen."""
        kind = _kind(request)
        self._refuse_unless_may(kind)
        form = await self._form(request)
        key = _KEY.validate_python(form.pop("key", ""))
        act = ACTS[kind].model_validate({name: value for name, value in form.items() if value})
        done = await run_in_threadpool(self._client.do, act, key)
        return self._after(kind, address_after(done, act))

    def _refuse_unless_may(self, deed: Deed) -> None:
        """Raises HTTPException where the person's role does not have it: IAM would refuse it, but later."""
        if deed not in self._of.may:
            raise HTTPException(403, f"{self._of.who} may look, but has no leave for {label_of(deed)}.")

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
        form = {name: "\n".join(values) for name, values in fields.items()}
        token, own = form.pop("token", ""), self._visit.form_token
        if not hmac.compare_digest(token.encode(), own.encode()):
            raise HTTPException(403, "This form is of an earlier session. Load its page again.")
        return form

    def _show(self, request: Request, template: str, status: int = 200, **values: Any) -> Response:
        did = request.query_params.get("did", "")
        label = label_of(ActKind(did)) if did in list(ActKind) else "Drill" if did == "drill" else ""
        of = self._of
        common = {"who": of.who, "where": of.where, "may": of.may, "token": self._visit.form_token, "did": label}
        return self._pages.show(request, template, status, **common, **values)

    def _known_pools(self) -> list[str]:
        return list(self._client.ports.fleet_index.pools())

    def failed(self, request: Request, error: Exception) -> Response:
        """Say what went wrong, and what to do. Raises what is a fault of nodeheal's."""
        if visit() is None:  # a page has a person's name and the token of their forms
            if isinstance(error, HTTPException):
                return PlainTextResponse(f"{error.detail}\n", error.status_code)
            raise error
        if isinstance(error, HTTPException):
            title = "Not found" if error.status_code == 404 else "Not done"
            return self._show(request, "failed.html", error.status_code, title=title, text=error.detail)
        text = self._of.in_words(error)
        if text is None:
            raise error
        status, title = 502, "AWS has not done it"
        if isinstance(error, NotFound):
            status, title = 404, "Not found"
        elif isinstance(error, Conflict):
            status, title = 409, "Not possible now"
        elif isinstance(error, (NodehealError, ValueError)):
            status, title = 400, "Not done"
        return self._show(request, "failed.html", status, title=title, text=text)


def console_app(door: Door, errors: tuple[type[Exception], ...] = ()) -> Starlette:
    """Return the application, which answers those whom the door lets in. `errors`: what calls of AWS raise."""
    console = Console(door)
    return Starlette(
        routes=console.routes(),
        middleware=[Middleware(Gate, door=door)],
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


def _kind(request: Request) -> ActKind:
    known = {kind.path: kind for kind in SUBJECTS}
    kind = known.get(request.url.path)
    if kind is None:
        raise HTTPException(404, "There is no such act here.")
    return kind


def _chosen(word: str, known: Any, field: str) -> str:
    if word not in list(known):
        raise ValueError(f"{field}: {word[:40]!r} is not one of {', '.join(known)}")
    return word


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


def _pools(request: Request) -> list[str]:
    return [pool for pool in request.query_params.getlist("pool") if pool]


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
