"""One node, as `nodeheal nodes show` tells of it."""

from datetime import datetime

from nodeheal.cli.table import fitted
from nodeheal.contract.health_event import NodeHardwareReported
from nodeheal.contract.vocabulary import NodeState
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.recovery.incident import short_id
from nodeheal.domain.review.review import shown_title, state_word
from nodeheal.services.operators.look_at_node import NodeView


def as_text(view: NodeView, now: datetime, dashboard: str = "") -> list[str]:
    """For people, a line for each question. `dashboard`: its address; empty where there is none."""
    node = view.node
    paused = f"until {_at(node.paused_until)} ({node.paused_why})" if node.is_paused(now) else ""
    probation = node.probation_until if node.state is NodeState.PROBATION else None
    left = ", ".join(f"{count} {action}" for action, count in view.attempts_left.items())
    return [
        f"Node         {node.node_id}" + (", kept as a spare" if node.is_spare else ""),
        f"Pool         {node.pool} ({node.provider}, cluster {node.cluster})",
        f"State        {_state(view)}",
        f"Probation    {f'until {_at(probation)}' if probation else 'no'}",
        f"Rack         {node.rack or '-'}",
        *_heard(node),
        *_hardware(view),
        f"Job          {node.job_id or '-'}",
        f"Incident     {node.open_incident or '-'}",
        *[f"Handed over  not closed: nodeheal incidents show {short_id(one)}" for one in view.handed_over],
        f"Attempts     left now: {left}",
        f"Budget       {'holds a' if view.has_slot else 'holds no'} slot; {view.slots.taken(view.slots_held)}",
        f"Drained      {'by nodeheal' if node.drained_by_us else 'nodeheal has not drained it'}",
        f"Pause        {'; '.join(filter(None, [paused, view.pool.why_paused(now)])) or 'no'}",
        f"Diagnostics  {_diagnostics(node)}",
        *_recoveries(view),
        *_states(node),
        *([f"Dashboard    {dashboard}"] if dashboard else []),
    ]


def _state(view: NodeView) -> str:
    """The state, with what is known of it: since when, and why."""
    since = f" since {_at(view.since)}" if view.since else ""
    why = f": {view.node.state_reason}" if view.node.state_reason else ""
    return f"{view.node.state}{since}{why}"


def _hardware(view: NodeView) -> list[str]:
    """What it is made of: how many accelerators, and each by itself where the node has reported them."""
    node, report = view.node, view.hardware
    if report is None:
        return [f"Accelerators {node.accelerators or 'nobody has said how many'}, not described yet by its agent"]
    parts = report.accelerators
    known = f" of {node.accelerators}" if node.accelerators > len(parts) else ""
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
        f"  as of {_at(report.observed_at)} (ECC: uncorrected errors; ROWS: remapped)",
        *(f"  {line}" for line in fitted([(*head, "LINKS UP"), *rows], None)),
    ]


def _or_dash(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _recoveries(view: NodeView) -> list[str]:
    """What took it out of service, and how each of these incidents ended; the newest first."""
    if not view.recoveries:
        return ["Recoveries   -"]
    rows = [
        (short_id(past.incident_id), _at(past.opened_at), shown_title(past), f"{state_word(past)}: {past.summary}")
        for past in view.recoveries
    ]
    return ["Recoveries, the newest first:", *(f"  {line}" for line in fitted(rows, None))]


def _states(node: Node) -> list[str]:
    """The states that it has been in, the newest first."""
    changes = [f"  {_at(one.at)}  {one.state}{f': {one.reason}' if one.reason else ''}" for one in node.state_changes]
    return ["States, the newest first:", *changes] if changes else []


def _heard(node: Node) -> list[str]:
    """What its agent has told."""
    if not node.has_reported:
        return ["Boot         -", "Agent        has never reported"]
    return [
        f"Boot         {node.boot_id} since {_at(node.booted_at)}",
        f"Agent        {node.agent_version or '-'}, last seen {_at(node.last_seen)}",
    ]


def as_json_of(view: NodeView) -> dict[str, object]:
    """For programs."""
    node = view.node
    return {
        "node": node.node_id,
        "pool": node.pool,
        "provider": node.provider.value,
        "cluster": node.cluster,
        "spare": node.is_spare,
        "rack": node.rack or None,
        "state": node.state.value,
        "reason": node.state_reason,
        "since": _iso(view.since),
        "job": node.job_id,
        "incident": node.open_incident,
        "handed_over": list(view.handed_over),
        "attempts_left": {action.value: count for action, count in view.attempts_left.items()},
        "has_slot": view.has_slot,
        "slots_held": view.slots_held,
        "slots": view.slots.total,
        "extra": view.slots.extra,
        "drained_by_us": node.drained_by_us,
        "pool_paused_until": _iso(view.pool.paused_until),
        "pool_paused_why": view.pool.paused_why,
        "hardware": _hardware_json(view.hardware),
        "recoveries": [
            {
                "incident": past.incident_id,
                "opened_at": _iso(past.opened_at),
                "fault": shown_title(past),
                "state": state_word(past).value,
                "summary": past.summary,
            }
            for past in view.recoveries
        ],
        **_life(node),
    }


def _hardware_json(report: NodeHardwareReported | None) -> dict[str, object] | None:
    if report is None:
        return None
    parts = [part.model_dump(mode="json") for part in report.accelerators]
    return {"at": _iso(report.observed_at), "machine": report.machine, "accelerators": parts}


def _life(node: Node) -> dict[str, object]:
    """What it is, and what became of it."""
    return {
        "boot": node.boot_id if node.has_reported else None,
        "booted_at": _iso(node.booted_at) if node.has_reported else None,
        "agent": node.agent_version,
        "last_seen": _iso(node.last_seen) if node.has_reported else None,
        "accelerators": node.accelerators,
        "probation_until": _iso(node.probation_until),
        "paused_until": _iso(node.paused_until),
        "paused_why": node.paused_why,
        "good_since": _iso(node.healthy_since),
        "passed_at": _iso(node.passed_at),
        "last_diagnosis": _reported(node),
        "good_run": node.diagnostic_baseline,
        "states": [{"at": _iso(one.at), "state": one.state.value, "reason": one.reason} for one in node.state_changes],
    }


def _reported(node: Node) -> dict[str, str | None] | None:
    found = node.last_diagnosis
    return {"at": _iso(found.at), "verdict": found.verdict.value, "reason": found.reason} if found else None


def _diagnostics(node: Node) -> str:
    if node.passed_at is None:
        found = node.last_diagnosis
        told = f"; {found.verdict} at {_at(found.at)}{f' ({found.reason})' if found.reason else ''}" if found else ""
        return f"none passed that nodeheal asked for{told}"
    measured = ", ".join(f"{name} {value:g}" for name, value in sorted(node.diagnostic_baseline.items()))
    return f"last passed {_at(node.passed_at)}" + (f": {measured}" if measured else "")


def _at(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC" if at else "-"


def _iso(at: datetime | None) -> str | None:
    return at.isoformat(timespec="seconds") if at else None
