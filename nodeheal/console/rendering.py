"""Turns views into pages. What a node, a job or a person has said is text in them, and never markup."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from nodeheal.api.job_views import AccountView
from nodeheal.api.views import TodoKind
from nodeheal.console.roles import AnyAct, OwnAct
from nodeheal.contract.vocabulary import ActKind, Availability, Awaited
from nodeheal.domain.fleet.availability import HELD, OUT
from nodeheal.domain.humanize import counted, in_percent, lasting
from nodeheal.domain.recovery.incident import short_id
from nodeheal.domain.review.review import AWAITED


class Tone(StrEnum):
    """What a state asks of the person who reads it. Each has a colour and a mark."""

    good = "good"
    busy = "busy"
    watch = "watch"
    work = "work"
    bad = "bad"
    plain = "plain"


_TONES: Mapping[str, Tone] = {
    **dict.fromkeys(("FREE", "UP", "HEALTHY", "COMPLETED", "RECOVERED", "DONE", "PASS"), Tone.good),
    **dict.fromkeys(("recovered", "done", "restarted"), Tone.good),
    **dict.fromkeys(("BUSY", "RUNNING"), Tone.busy),
    **dict.fromkeys(("PROBATION", "SUSPECT", "DRAINING", "waiting", "WAITING", "SUBMITTED", "STOPPED"), Tone.watch),
    **dict.fromkeys(("ISOLATED", "RECOVERING", "open", "OPEN", "DRAINED", "HELD"), Tone.work),
    **dict.fromkeys(("QUARANTINED", "OUT", "HANDED_TO_A_HUMAN", "handed over", "escalated", "ESCALATED"), Tone.bad),
    **dict.fromkeys(("FAILED", "REFUSED", "TIMED_OUT", "FAIL"), Tone.bad),
    **{"ok": Tone.good, "warn": Tone.watch, "fail": Tone.bad},  # of `nodeheal doctor`
}
# The letter of a node's cell, so that colour is not the only sign.
LETTERS: Mapping[Availability, str] = {
    Availability.FREE: "F",
    Availability.UP: "U",
    Availability.BUSY: "B",
    Availability.SUSPECT: "S",
    Availability.DRAINING: "G",
    Availability.PROBATION: "P",
    Availability.DRAINED: "D",
    Availability.ISOLATED: "I",
    Availability.RECOVERING: "R",
    Availability.QUARANTINED: "Q",
    Availability.ENROLLED: "E",
    Availability.UNENROLLED: "?",
    Availability.RETIRED: "–",
}
# The groups by which people ask whether a job can start, in the order of `nodeheal status`.
GROUPS: Mapping[str, frozenset[Availability]] = {
    "FREE": frozenset({Availability.FREE, Availability.UP}),
    "BUSY": frozenset({Availability.BUSY}),
    "HELD": HELD,
    "PROBATION": frozenset({Availability.PROBATION}),
    "OUT": OUT,
}
# What a job's time goes into, with its tone, in the order of its bar.
_SPENDING = (
    ("trained", Tone.good),
    ("checks", Tone.busy),
    ("waited", Tone.plain),
    ("started", Tone.watch),
    ("trained again", Tone.work),
    ("down", Tone.bad),
)
NODE_ACTS = (
    ActKind.DRAIN,
    ActKind.DIAGNOSE,
    ActKind.REBOOT,
    ActKind.REPLACE,
    ActKind.ISOLATE,
    ActKind.RELEASE,
    ActKind.RETIRE,
)
# Of which field of the act its subject is.
SUBJECTS: Mapping[ActKind, str] = {
    **dict.fromkeys((ActKind.APPROVE, ActKind.REFUSE, ActKind.CLOSE_INCIDENT), "incident"),
    **dict.fromkeys((ActKind.STOP_JOB, ActKind.RESTART_JOB), "job"),
    **dict.fromkeys(NODE_ACTS, "node"),
    ActKind.RESET_BREAKER: "pool",
}
PAGES: Mapping[str, str] = {"incident": "incidents", "job": "jobs", "node": "nodes", "pool": "pools"}
_TODO: Mapping[TodoKind, tuple[str, Tone]] = {
    TodoKind.ANSWER: ("Answer", Tone.watch),
    TodoKind.RESET_BREAKER: ("Breaker open", Tone.bad),
    TodoKind.TAKE_OVER: ("Handed to you", Tone.bad),
    TodoKind.BRING_BACK_JOB: ("Job down", Tone.bad),
}
# As a form's first button it keeps Enter in a field from pressing the next one: an act is pressed, not typed.
_NO_ENTER = Markup("<button disabled hidden></button>")
_MODES: Mapping[str, str] = {
    "observe": "nodeheal observes: it acts on nothing here",
    "approve": "nodeheal asks before it acts here",
    "act": "nodeheal acts by itself here",
}


def label_of(kind: AnyAct) -> str:
    """Return the act's name for a button: `Close incident`."""
    return kind.value.replace("_", " ").capitalize()


def tone_of(word: object) -> Tone:
    """Return what this state asks of people."""
    return _TONES.get(str(word), Tone.plain)


def _chip(word: object, tone: str = "") -> Markup:
    """A state as a chip: a mark and the word."""
    shown = str(word).replace("_", " ").lower()
    return Markup('<span class="chip {}">{}</span>').format(tone or tone_of(word), _visible(shown))


def _time(at: datetime | None) -> Markup:
    """A time, in UTC. The page's script adds the viewer's own."""
    if at is None:
        return Markup("–")
    utc = at.astimezone(UTC)
    return Markup('<time datetime="{:%Y-%m-%dT%H:%M:%SZ}">{:%Y-%m-%d %H:%M:%S} UTC</time>').format(utc, utc)


def _since(at: datetime | None) -> Markup:
    """How long ago: written by the page's script, so that a page that has not changed stays the same bytes."""
    if at is None:
        return Markup("–")
    utc = at.astimezone(UTC)
    return Markup('<time class="ago" datetime="{:%Y-%m-%dT%H:%M:%SZ}">{:%m-%d %H:%M} UTC</time>').format(utc, utc)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"


def _sentence(word: object) -> str:
    return str(word).replace("_", " ").capitalize()


def _bar(parts: Sequence[tuple[float, Tone]]) -> Markup:
    """A bar of shares from 0 to 1, as SVG: the content policy permits no styles in the page."""
    drawn, x = Markup(), 0.0
    for share, tone in parts:
        width = max(0.0, min(share, 1.0)) * 1_000
        drawn += Markup('<rect class="{}" x="{:.1f}" y="0" width="{:.1f}" height="10"></rect>').format(tone, x, width)
        x += width
    return Markup(
        '<svg class="bar-of" viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" aria-hidden="true">{}</svg>'
    ).format(drawn)


def _spent(account: AccountView) -> list[tuple[str, float, Tone]]:
    """What a job's time went into: the word, the seconds and the tone."""
    lost = account.losses
    seconds = (
        account.productive_seconds,
        lost.preflight_seconds,
        lost.waiting_seconds,
        lost.restart_seconds,
        lost.recomputed_seconds,
        lost.down_seconds,
    )
    return [(word, spent, tone) for (word, tone), spent in zip(_SPENDING, seconds, strict=True) if spent]


def _shares(account: AccountView) -> list[tuple[float, Tone]]:
    return [(seconds / account.wall_seconds, tone) for _, seconds, tone in _spent(account)]


def address_of(kind: str, name: str) -> str:
    """Return the page of a thing: `incident`, `job`, `node` or `pool`."""
    return _at(PAGES[kind], name)


def act_address(kind: ActKind, subject: str) -> str:
    """Return the address of the page that previews an act."""
    return f"{kind.path}?{urlencode({SUBJECTS[kind]: subject})}"


def _at(*parts: str) -> str:
    """An address of ours: its parts may hold any character."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


def with_cursor(asked: Sequence[tuple[str, str]], cursor: str) -> str:
    """Return the query of the page that begins after the cursor."""
    return urlencode([*((name, value) for name, value in asked if name != "after"), ("after", cursor)])


def _visible(value: object) -> object:
    """Text without what a screen would take for a command, or that turns the direction of a line."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in value)
    return value


def environment() -> Environment:
    """Return the templates. An unknown name is an error, and everything is escaped."""
    made = Environment(
        loader=PackageLoader("nodeheal.console"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        chip=_chip,
        counts=lambda counts, words: sum(counts.get(word, 0) for word in words),
        lasting=lasting,
        moment=lambda text: datetime.fromisoformat(text) if text else None,
        mode=lambda mode: _MODES.get(mode, mode),
        number=_number,
        percent=in_percent,
        query=urlencode,
        short=short_id,
        shares=_shares,
        since=_since,
        spent=_spent,
        step=_sentence,
        time=_time,
        tone=tone_of,
        wait=lambda awaited: AWAITED[Awaited(awaited)],
    )
    made.globals.update(
        ActKind=ActKind,
        OwnAct=OwnAct,
        act_address=act_address,
        act_labels={kind: label_of(kind) for kind in ActKind},
        at=_at,
        bar=_bar,
        counted=counted,
        groups=GROUPS,
        letters=LETTERS,
        no_enter=_NO_ENTER,
        spending=_SPENDING,
        subjects=SUBJECTS,
        todo_tones={kind: tone for kind, (_, tone) in _TODO.items()},
        todo_words={kind: word for kind, (word, _) in _TODO.items()},
        with_cursor=with_cursor,
    )
    return made


def attachment(text: str, kind: str, name: str) -> Response:
    """Return a file of this media type to keep. `name`: ours, or an id."""
    return Response(text, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})


class PageWriter:
    """Answers with pages, and with 304 where the browser has the same one already."""

    def __init__(self, shared: Mapping[str, Any]) -> None:
        self._environment = environment()
        self._shared = shared

    def show(self, request: Request, template: str, status: int = 200, **values: Any) -> Response:
        """Return the page. `values`: what the template names."""
        asked = request.query_params.multi_items()
        text = self._environment.get_template(template).render(
            **self._shared,
            **values,
            path=request.url.path,
            asked=asked,
            address=f"{request.url.path}?{urlencode(asked)}" if asked else request.url.path,
        )
        tag = f'"{sha256(text.encode()).hexdigest()[:32]}"'
        headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
        if status == 200 and request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return HTMLResponse(text, status, headers)
