"""One node, as `nodeheal nodes show` tells of it."""

from collections.abc import Iterator
from datetime import datetime

from nodeheal.api.views import NodeView
from nodeheal.cli.table import fitted
from nodeheal.contract.vocabulary import NodeState
from nodeheal.domain.fleet.pause import Pause
from nodeheal.domain.fleet.pool import Slots
from nodeheal.domain.recovery.incident import short_id


def as_text(view: NodeView, dashboard: str = "") -> list[str]:
    """For people, a line for each question. `dashboard`: its address; empty where there is none."""
    probation = view.probation_until if view.state is NodeState.PROBATION else None
    slots = Slots(view.slots - view.extra, view.extra)
    left = ", ".join(f"{count} {action}" for action, count in view.attempts_left.items())
    return [
        f"Node         {view.node}" + (", kept as a spare" if view.spare else ""),
        f"Pool         {view.pool} ({view.provider}, cluster {view.cluster})",
        f"State        {_state(view)}",
        f"Probation    {f'until {_at(probation)}' if probation else 'no'}",
        f"Rack         {view.rack or '-'}",
        *_heard(view),
        *_hardware(view),
        f"Job          {view.job or '-'}",
        f"Incident     {view.incident or '-'}",
        *[f"Handed over  not closed: nodeheal incidents show {short_id(name)}" for name in view.handed_over],
        f"Attempts     left now: {left}",
        f"Budget       {'holds a' if view.has_slot else 'holds no'} slot; {slots.taken(view.slots_held)}",
        f"Drained      {'by nodeheal' if view.drained_by_us else 'nodeheal has not drained it'}",
        f"Pause        {'; '.join(_pauses(view)) or 'no'}",
        *(f"Order        {action} by its label waits: {why}" for action, why in view.orders.items()),
        f"Diagnostics  {_diagnostics(view)}",
        *_recoveries(view),
        *_states(view),
        *([f"Dashboard    {dashboard}"] if dashboard else []),
    ]


def _pauses(view: NodeView) -> Iterator[str]:
    """The node's pause, and its pool's."""
    if view.paused_until is not None:
        yield f"until {_at(view.paused_until)} ({view.paused_why})"
    if view.pool_paused_until is not None:
        yield Pause(view.pool_paused_until, view.pool_paused_why).sentence(f"pool {view.pool}")


def _state(view: NodeView) -> str:
    """The state, with what is known of it: since when, and why."""
    since = f" since {_at(view.since)}" if view.since else ""
    why = f": {view.reason}" if view.reason else ""
    return f"{view.state}{since}{why}"


def _hardware(view: NodeView) -> list[str]:
    """What it is made of: how many accelerators, and each by itself where the node has reported them."""
    report = view.hardware
    if report is None:
        return [f"Accelerators {view.accelerators or 'nobody has said how many'}, not described yet by its agent"]
    parts = report.accelerators
    known = f" of {view.accelerators}" if view.accelerators > len(parts) else ""
    models = ", ".join(sorted({part.model for part in parts if part.model}))
    memory = {part.memory_mib for part in parts if part.memory_mib}
    each = f", {memory.pop():,} MiB each" if len(memory) == 1 else ""
    rows = [
        (
            str(part.index),
            part.component,
            part.serial or "-",
            _or_dash(part.temperature_celsius),
            _or_dash(part.ecc_uncorrected),
            _or_dash(part.rows_remapped),
            f"{part.links_up} of {part.links}" if part.links else "-",
        )
        for part in parts
    ]
    head = ("GPU" if any(part.uuid for part in parts) else "DEVICE", "ADDRESS", "SERIAL", "CELSIUS", "ECC", "ROWS")
    return [
        *([f"Machine      {report.machine}"] if report.machine else []),
        f"Accelerators {len(parts)}{known}{f', {models}' if models else ''}{each}",
        f"  as of {_at(report.at)} (ECC: uncorrected errors; ROWS: remapped)",
        *(f"  {line}" for line in fitted([(*head, "LINKS UP"), *rows], None)),
    ]


def _or_dash(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _recoveries(view: NodeView) -> list[str]:
    """What took it out of service, and how each of these incidents ended; the newest first."""
    if not view.recoveries:
        return ["Recoveries   -"]
    rows = [
        (
            short_id(past.incident),
            _at(past.opened_at),
            f"{past.fault} (drill)" if past.is_drill else past.fault,
            f"{past.state}: {past.summary}",
        )
        for past in view.recoveries
    ]
    return ["Recoveries, the newest first:", *(f"  {line}" for line in fitted(rows, None))]


def _states(view: NodeView) -> list[str]:
    """The states that it has been in, the newest first."""
    changes = [
        f"  {_at(change.at)}  {change.state}{f': {change.reason}' if change.reason else ''}" for change in view.states
    ]
    return ["States, the newest first:", *changes] if changes else []


def _heard(view: NodeView) -> list[str]:
    """What its agent has told."""
    if view.last_seen is None:
        return ["Boot         -", "Agent        has never reported"]
    return [
        f"Boot         {view.boot} since {_at(view.booted_at)}",
        f"Agent        {view.agent or '-'}, last seen {_at(view.last_seen)}",
    ]


def _diagnostics(view: NodeView) -> str:
    if view.passed_at is None:
        last = view.last_diagnosis
        suffix = f"; {last.verdict} at {_at(last.at)}{f' ({last.reason})' if last.reason else ''}" if last else ""
        return f"none passed that nodeheal asked for{suffix}"
    measured = ", ".join(f"{name} {value:g}" for name, value in sorted(view.good_run.items()))
    return f"last passed {_at(view.passed_at)}" + (f": {measured}" if measured else "")


def _at(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC" if at else "-"
