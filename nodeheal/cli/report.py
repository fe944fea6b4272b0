"""Incidents as a Markdown page. What nodes said is text in it, and never a heading, a link or a tag."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime

from nodeheal.api.incident_views import IncidentReport, IncidentReview, PartView

# Whatever gives text a meaning in GitHub's Markdown, where it does: an underscore within a word is none, nor is a
# round bracket but behind a square one. `://`, '@' and 'www.' would make links, '#7' one to an issue, '&lt;' a tag.
_MEANS_SOMETHING = re.compile(r"([\\`*\[\]<|~@]|(?<=\])\(|(?<![^\W_])_|_(?![^\W_])|:(?=//)|#(?=\d)|&(?=#?\w+;))")


def plain(text: str) -> str:
    """The text on one line, without a meaning of its own."""
    visible = "".join(c if c.isprintable() else " " for c in text)
    return _MEANS_SOMETHING.sub(r"\\\1", " ".join(visible.split())).replace("www.", "www\\.")


def as_markdown(report: IncidentReport, title: str) -> list[str]:
    """The page, line by line."""
    stats = report.tally
    took = stats.time_to_recover
    numbers = [
        ("incidents", str(stats.incidents)),
        ("asked for by operators, and new nodes: counted only in the hours lost", str(stats.asked)),
        ("drills, counted in nothing else", str(stats.drills)),
        ("recovered by nodeheal alone", str(took.incidents if took else 0)),
        ("time to recover: mean", f"{took.mean:.1f} s" if took else "-"),
        ("time to recover: median", f"{took.median:.1f} s" if took else "-"),
        ("time to recover: 90 % within", f"{took.p90:.1f} s" if took else "-"),
        ("accelerator-hours lost", f"{stats.lost_accelerator_hours:.2f}"),
    ]
    return [
        f"# Incidents: {plain(title)}",
        "",
        *_table(("what", "how much"), numbers),
        *_counts("Causes", stats.by_cause),
        *_counts("Endings", stats.by_ending),
        *_counts("Accelerators that came again, by serial", stats.accelerators_again),
        *_counts("Nodes that came again", stats.nodes_again),
        *_counts("Racks", stats.by_rack),
        "",
        "## Every incident",
        "",
        *_table(
            ("opened, UTC", "incident", "node", "job", "fault", "how it stands", "seconds", "why"),
            _rows(report.incidents),
        ),
    ]


def part_as_markdown(record: PartView) -> list[str]:
    """The page about one accelerator, line by line."""
    about = [
        ("serial", record.serial),
        ("product", record.product or "-"),
        *sorted(record.labels.items()),
        ("seen at", "; ".join(record.places)),
        ("first fault, UTC", _moment(record.faults[0].at) if record.faults else "-"),
        ("last fault, UTC", _moment(record.faults[-1].at) if record.faults else "-"),
    ]
    faults = [
        (_moment(f.at), f.node_id, f.component or "-", f.fault, f.verdict.value, str(f.times), f.line or "-")
        for f in record.faults
    ]
    repairs = [(_moment(r.at), r.node_id, r.step.value, r.outcome, r.result, r.incident_id) for r in record.repairs]
    return [
        f"# Accelerator {plain(record.serial)}: faults of the last {plain(record.since)}",
        "",
        *_table(("what", "value"), about),
        "",
        "## Faults",
        "",
        *_table(("UTC", "node", "address", "fault", "verdict", "times", "as reported"), faults),
        "",
        "## What was done to its node",
        "",
        *(_table(("UTC", "node", "step", "outcome", "result", "incident"), repairs) if repairs else ["Nothing."]),
        "",
        "## Saved state (kernel log, vendor tools)",
        "",
        *([f"- {plain(link)}" for link in record.evidence] or ["None saved."]),
    ]


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}"


def _rows(reviews: Sequence[IncidentReview]) -> list[tuple[str, ...]]:
    return [
        (
            f"{review.opened_at:%Y-%m-%d %H:%M}",
            review.incident_id,
            review.node_id,
            review.job_id or "-",
            review.fault + (" (drill)" if review.is_drill else ""),
            review.status,
            f"{review.seconds_to_recover:.1f}" if review.seconds_to_recover is not None else "-",
            review.summary or "-",
        )
        for review in reviews
    ]


def _counts(title: str, counts: Mapping[str, int]) -> list[str]:
    if not counts:
        return ["", f"## {title}", "", "None."]
    return ["", f"## {title}", "", *_table(("which", "incidents"), [(name, str(n)) for name, n in counts.items()])]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *([plain(cell) for cell in row] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]
