"""How everything stands, as `nodeheal status` and `nodeheal pools list` tell of it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from nodeheal.cli.say import age, clean, iso, wrapped
from nodeheal.cli.table import fitted
from nodeheal.contract.vocabulary import Availability
from nodeheal.domain.fleet.availability import HELD, OUT
from nodeheal.domain.humanize import counted
from nodeheal.domain.jobs.job import Job
from nodeheal.domain.recovery.incident import Incident, short_id
from nodeheal.domain.review.review import doing_now, shown_title, title_of
from nodeheal.services.jobs.job_troubles import needed_of_operators
from nodeheal.services.operators.look_at_fleet import Asked, FleetView, PoolView

POOL_HEAD = ("POOL", "MODE", "NODES", "FREE", "BUSY", "HELD", "PROB", "OUT", "SPARE", "BUDGET", "BREAKER", "NOTE")
INCIDENT_HEAD = ("INCIDENT", "AGE", "NODE", "JOB", "NOW", "FOR", "FAULT")
JOB_HEAD = ("JOB", "STATE", "POOL", "NODES", "AGE", "HOW IT STANDS")


def as_lines(view: FleetView, width: int | None) -> list[str]:
    """The screen, for people. `width` in characters; None: as wide as it is, and without colours."""
    told = _stopped(view, width)
    if not view.pools:
        return [*told, "No pool yet: no node has reported. `nodeheal doctor` says whether anything is missing."]
    told += _table(POOL_HEAD, [pool_cells(one, view.at) for one in view.pools], width)
    told += [part for line in why_extra(view.pools) for part in wrapped(line, width or 0)]
    told += ["", *_waiting(view, width), *wrapped(last_day_text(view), width or 0)]
    if view.open:
        told += ["", "Under way", *_table(INCIDENT_HEAD, [_incident(one, view.at) for one in view.open], width)]
    if view.jobs:
        told += ["", "Jobs", *_table(JOB_HEAD, [_job(one, view.at) for one in view.jobs], width)]
    return told


def _stopped(view: FleetView, width: int | None) -> list[str]:
    """That nodeheal does nothing, where its records went back, and what to do."""
    if view.records_lost_since is None:
        return []
    since = f"{view.records_lost_since:%Y-%m-%d %H:%M:%S} UTC"
    told = f"nodeheal does nothing: its table was restored, and knows nothing of what was done since {since}."
    return [*wrapped(told, width or 0), "  nodeheal reconcile --dry-run", ""]


def pool_cells(one: PoolView, now: datetime) -> tuple[str, ...]:
    """A pool's line."""
    count = one.by_availability.get
    breaker = "open" if one.pool.is_tripped else "closed"
    budget = f"{one.slots_held} of {one.slots}"
    return (
        one.pool.name,
        one.mode,
        str(one.size),
        str(count(Availability.FREE, 0) + count(Availability.UP, 0)),
        str(count(Availability.BUSY, 0)),
        str(sum(count(word, 0) for word in HELD)),
        str(count(Availability.PROBATION, 0)),
        str(sum(count(word, 0) for word in OUT)),
        str(one.spares),
        budget,
        breaker,
        "; ".join(_notes(one, now)) or "-",
    )


def why_extra(pools: Sequence[PoolView]) -> list[str]:
    """What `+1` in the budget means, where a pool has that."""
    if not any(one.slots.extra for one in pools):
        return []
    return ["BUDGET: after + are more slots, for as long as nodes are quarantined."]


def _notes(one: PoolView, now: datetime) -> list[str]:
    out = [f"{count} {word}" for word, count in one.by_availability.items() if word in _UNUSUAL]
    waiting = [f"{counted(one.in_line, 'incident waits', 'incidents wait')} for a slot"] if one.in_line else []
    until = one.pool.paused_until if one.pool.why_paused(now) else None
    paused = f"paused until {until:%Y-%m-%d %H:%M:%S} UTC ({one.pool.paused_why})" if until else ""
    return [*filter(None, [paused]), *out, *waiting]


_UNUSUAL = HELD | OUT | {Availability.ENROLLED}


def last_day_text(view: FleetView) -> str:
    """What a Monday morning asks: how many incidents ended, and how, and what they cost."""
    day, on_probation = view.last_day, sum(one.by_availability.get(Availability.PROBATION, 0) for one in view.pools)
    if not day.ended:
        return "Last 24 hours: no incident has ended."
    parts = [f"{count} {word}" for word, count in day.ended.items()]
    parts += [f"{counted(on_probation, 'node')} on probation"] if on_probation else []
    parts += [f"{day.lost_hours:.1f} accelerator-hours lost"] if day.lost_hours is not None else []
    return f"Last 24 hours: {', '.join(parts)} (nodeheal incidents list --since 1d)"


def _waiting(view: FleetView, width: int | None) -> list[str]:
    """What a human has to do, with the command of each."""
    rows = [
        *(_about(one.incident, view.at, _answer(one)) for one in view.asked),
        *(
            (one.pool.name, age(one.pool.breaker_opened_at, view.at), "-", _reset(one))
            for one in view.pools
            if one.pool.is_tripped
        ),
        *(_about(one, view.at, _see(one)) for one in view.handed_over),
        *((one.job_id, age(view.down_since.get(one.job_id), view.at), "-", _see_to(one)) for one in view.failed),
    ]
    if not rows:
        return ["Nothing waits for you."]
    return ["Waits for you", *_table(("WHAT", "AGE", "NODE", "WHAT TO DO"), rows, width)]


def _about(one: Incident, now: datetime, to_do: str) -> tuple[str, ...]:
    drill = "drill: " if one.began_as_drill else ""
    return (short_id(one.incident_id), age(one.opened_at, now), one.node_id, f"{drill}{to_do}")


def _answer(one: Asked) -> str:
    short, until = short_id(one.incident.incident_id), f"{one.deadline_at:%Y-%m-%d %H:%M:%S} UTC"
    return (
        f"answer it by {until}: nodeheal approve {short} --why … (or refuse); nodeheal incidents show {short} says "
        "what is asked"
    )


def _reset(one: PoolView) -> str:
    name = one.pool.name
    return f"the breaker is open: {one.pool.breaker_why}. Look at the pool, then nodeheal breaker reset {name} --why …"


def _see(one: Incident) -> str:
    told = (one.summary or title_of(one.root)).rstrip(".")
    return f"{told}: nodeheal incidents show {short_id(one.incident_id)}"


def _see_to(job: Job) -> str:
    """As the email to the operators says."""
    why = (job.summary or "it has failed").rstrip(".")
    need, is_theirs = needed_of_operators(job.trouble, has_owner=job.owner is not None)
    does = f"nodeheal jobs {'restart' if is_theirs else 'show'} {job.job_id}"
    return f"{why}. Needed: {need} {does}. If it stays down: nodeheal jobs stop {job.job_id} --why …"


def _incident(one: Incident, now: datetime) -> tuple[str, ...]:
    opened, job, since = age(one.opened_at, now), one.job_id or "-", age(one.step_at or one.opened_at, now)
    return (short_id(one.incident_id), opened, one.node_id, job, doing_now(one), since, shown_title(one))


def _job(job: Job, now: datetime) -> tuple[str, ...]:
    since = age(job.submitted_at, now)
    return (job.job_id, job.state.value, job.pool, str(job.nodes), since, job.summary or "-")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    return fitted([[" ".join(clean(cell).split()) for cell in row] for row in (head, *rows)], width)


def as_data(view: FleetView) -> dict[str, Any]:
    """The same, for programs."""
    return {
        "at": iso(view.at),
        "records_lost_since": iso(view.records_lost_since),
        "pools": [pool_data(one, view.at) for one in view.pools],
        "asked": [{**_incident_data(one.incident), "answer_by": iso(one.deadline_at)} for one in view.asked],
        "handed_over": [_incident_data(one) for one in view.handed_over],
        "open": [_incident_data(one) for one in view.open],
        "failed_jobs": [
            {"job": job.job_id, "pool": job.pool, "trouble": job.trouble, "summary": job.summary} for job in view.failed
        ],
        "last_24_hours": {"ended": view.last_day.ended, "lost_accelerator_hours": view.last_day.lost_hours},
        "jobs": [
            {"job": job.job_id, "state": job.state.value, "pool": job.pool, "nodes": job.nodes, "summary": job.summary}
            for job in view.jobs
        ],
    }


def pool_data(one: PoolView, now: datetime) -> dict[str, Any]:
    """A pool, for programs."""
    return {
        "pool": one.pool.name,
        "mode": one.mode,
        "size": one.size,
        "nodes": {state.value: count for state, count in one.by_state.items()},
        "availability": {word.value: count for word, count in one.by_availability.items()},
        "spares": one.spares,
        "slots_held": one.slots_held,
        "slots": one.slots.total,
        "extra": one.slots.extra,
        "in_line": one.in_line,
        "breaker_opened_at": iso(one.pool.breaker_opened_at),
        "breaker_why": one.pool.breaker_why or None,
        "paused_until": iso(one.pool.paused_until) if one.pool.why_paused(now) else None,
        "paused_why": one.pool.paused_why if one.pool.why_paused(now) else None,
        "jobs": {state.value: count for state, count in one.jobs.items()},
    }


def _incident_data(one: Incident) -> dict[str, str | None]:
    return {
        "incident": one.incident_id,
        "opened_at": iso(one.opened_at),
        "node": one.node_id,
        "pool": one.pool,
        "job": one.job_id,
        "state": one.state.value,
        "step": one.step.value if one.step and one.is_under_way else None,
        "step_at": iso(one.step_at) if one.is_under_way else None,
        "waits_for": one.awaits.value if one.awaits and one.is_under_way else None,
        "fault": title_of(one.root),
        "summary": one.summary or None,
    }
