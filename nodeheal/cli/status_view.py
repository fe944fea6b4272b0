"""How everything stands, as `nodeheal status` and `nodeheal pools list` tell of it."""

from collections.abc import Sequence
from datetime import datetime

from nodeheal.api.views import FleetGoodRow, FleetView, IncidentRow, JobRow, PoolRow, Todo, TodoKind
from nodeheal.cli.say import age, clean, wrapped
from nodeheal.cli.table import fitted
from nodeheal.contract.vocabulary import ActKind, Availability
from nodeheal.domain.fleet.availability import HELD, OUT
from nodeheal.domain.humanize import counted, in_percent
from nodeheal.domain.recovery.incident import short_id

POOL_HEAD = ("POOL", "MODE", "NODES", "FREE", "BUSY", "HELD", "PROB", "OUT", "SPARE", "BUDGET", "BREAKER", "NOTE")
INCIDENT_HEAD = ("INCIDENT", "AGE", "NODE", "JOB", "NOW", "FOR", "FAULT")
JOB_HEAD = ("JOB", "STATE", "POOL", "NODES", "AGE", "HOW IT STANDS")


def as_lines(view: FleetView, width: int | None) -> list[str]:
    """The screen, for people. `width` in characters; None: as wide as it is, and without colours."""
    lines = _stopped(view, width)
    if not view.pools:
        return [*lines, "No pool yet: no node has reported. `nodeheal doctor` says whether anything is missing."]
    lines += [part for line in good_lines(view.good) for part in wrapped(line, width or 0)]
    lines += _table(POOL_HEAD, [pool_cells(row, view.at) for row in view.pools], width)
    lines += [part for line in why_extra(view.pools) for part in wrapped(line, width or 0)]
    lines += ["", *_waiting(view, width), *wrapped(last_day_text(view), width or 0)]
    if view.open:
        lines += ["", "Under way", *_table(INCIDENT_HEAD, [_incident(row, view.at) for row in view.open], width)]
    if view.jobs:
        lines += ["", "Jobs", *_table(JOB_HEAD, [_job(row, view.at) for row in view.jobs], width)]
    return lines


def _stopped(view: FleetView, width: int | None) -> list[str]:
    """That nodeheal does nothing, where its records went back, and what to do."""
    if view.records_lost_since is None:
        return []
    since = f"{view.records_lost_since:%Y-%m-%d %H:%M:%S} UTC"
    sentence = f"nodeheal does nothing: its table was restored, and knows nothing of what was done since {since}."
    return [*wrapped(sentence, width or 0), "  nodeheal reconcile --dry-run", ""]


def good_lines(good: FleetGoodRow) -> list[str]:
    """One number for the fleet and the parts that it is the product of, so that a person sees which pulls it down."""
    if good.accelerators == 0:
        return []
    return [f"Fleet good: {in_percent(good.percent)}", f"  {_in_service(good)}", f"  {_as_usual(good)}", ""]


def _in_service(good: FleetGoodRow) -> str:
    if good.in_service is None:
        return "accelerators in service: not known until the sweep has counted a large pool"
    of = f"{good.accelerators_in_service:,} of {good.accelerators:,}"
    return f"{in_percent(good.in_service)} of accelerators are in service: {of}"


def _as_usual(good: FleetGoodRow) -> str:
    if good.accelerators_of_jobs is None:
        return "how jobs train: not known, since nobody has looked for ten minutes"
    if good.as_usual is None:
        return "no running job takes accelerators"
    not_shown = f", {good.accelerators_not_shown:,} of them without steps" if good.accelerators_not_shown else ""
    of = f"{good.accelerators_as_usual:,} of {good.accelerators_of_jobs:,}{not_shown}"
    return f"{in_percent(good.as_usual)} of those of running jobs train as usual: {of}"


def pool_cells(row: PoolRow, now: datetime) -> tuple[str, ...]:
    """A pool's line."""
    counts, slots = ["-"] * 7, "?"
    if row.size is not None and row.slots is not None:
        groups = ({Availability.FREE, Availability.UP}, {Availability.BUSY}, HELD, {Availability.PROBATION}, OUT)
        nodes = [sum(row.availability.get(word, 0) for word in group) for group in groups]
        counts = [str(count) for count in (row.size, *nodes, row.spares)]
        slots = f"{row.slots - row.extra}+{row.extra}" if row.extra else str(row.slots)
    return (
        row.pool,
        row.mode,
        *counts,
        f"{row.slots_held} of {slots}",
        "open" if row.breaker_opened_at else "closed",
        "; ".join(_notes(row, now)) or "-",
    )


def why_extra(pools: Sequence[PoolRow]) -> list[str]:
    """What `+1` in the budget means, where a pool has that."""
    if not any(row.extra for row in pools):
        return []
    return ["BUDGET: after + are more slots, for as long as nodes are quarantined."]


def _notes(row: PoolRow, now: datetime) -> list[str]:
    counted_at = [f"counted {age(row.counted_at, now)} ago"] if row.counted_at else []
    uncounted = ["not counted yet"] if row.size is None else []
    out = [f"{count} {word}" for word, count in row.availability.items() if word in _UNUSUAL]
    waiting = [f"{counted(row.in_line, 'incident waits', 'incidents wait')} for a slot"] if row.in_line else []
    until = row.paused_until
    paused = [f"paused until {until:%Y-%m-%d %H:%M:%S} UTC ({row.paused_why})"] if until else []
    return [*uncounted, *counted_at, *paused, *out, *waiting]


_UNUSUAL = HELD | OUT | {Availability.ENROLLED}


def last_day_text(view: FleetView) -> str:
    """What a Monday morning asks: how many incidents ended, and how, and what they cost."""
    day = view.last_24_hours
    on_probation = sum(row.availability.get(Availability.PROBATION, 0) for row in view.pools)
    if not day.ended:
        return "Last 24 hours: no incident has ended."
    parts = [f"{count} {word}" for word, count in day.ended.items()]
    parts += [f"{counted(on_probation, 'node')} on probation"] if on_probation else []
    lost = day.lost_accelerator_hours
    parts += [f"{lost:.1f} accelerator-hours lost"] if lost is not None else []
    return f"Last 24 hours: {', '.join(parts)} (nodeheal incidents list --since 1d)"


def _waiting(view: FleetView, width: int | None) -> list[str]:
    """What a person has to do, with the command of each."""
    if not view.todo:
        return ["Nothing waits for you."]
    rows = [(_name(todo), age(todo.since, view.at), todo.node or "-", _what_to_do(todo)) for todo in view.todo]
    return ["Waits for you", *_table(("WHAT", "AGE", "NODE", "WHAT TO DO"), rows, width)]


def _name(todo: Todo) -> str:
    return short_id(todo.subject) if todo.kind in (TodoKind.ANSWER, TodoKind.TAKE_OVER) else todo.subject


def _what_to_do(todo: Todo) -> str:
    name, why, drill = _name(todo), todo.why.rstrip("."), "drill: " if todo.is_drill else ""
    match todo.kind:
        case TodoKind.ANSWER:
            return (
                f"{drill}answer it by {todo.deadline_at:%Y-%m-%d %H:%M:%S} UTC: nodeheal approve {name} --why … (or "
                f"refuse); nodeheal incidents show {name} says what is asked"
            )
        case TodoKind.RESET_BREAKER:
            return f"the breaker is open: {todo.why}. Look at the pool, then nodeheal breaker reset {name} --why …"
        case TodoKind.TAKE_OVER:
            return f"{drill}{why}: nodeheal incidents show {name}"
        case TodoKind.BRING_BACK_JOB:
            does = f"nodeheal jobs {'restart' if ActKind.RESTART_JOB in todo.acts else 'show'} {name}"
            return f"{why}. Needed: {todo.need} {does}. If it stays down: nodeheal jobs stop {name} --why …"


def _incident(row: IncidentRow, now: datetime) -> tuple[str, ...]:
    since = age(row.step_at or row.opened_at, now)
    fault = f"{row.fault} (drill)" if row.began_as_drill else row.fault
    return (short_id(row.incident), age(row.opened_at, now), row.node, row.job or "-", row.doing, since, fault)


def _job(row: JobRow, now: datetime) -> tuple[str, ...]:
    return (row.job, row.state.value, row.pool, str(row.nodes), age(row.submitted_at, now), row.summary or "-")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    return fitted([[" ".join(clean(cell).split()) for cell in row] for row in (head, *rows)], width)
