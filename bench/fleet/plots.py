"""Draws the plots of docs/fleet.md as SVG: the same numbers give the same bytes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.fleet.plan import (
    AT_AWS,
    BY_HAND,
    EIGHT,
    GPUS_A_NODE,
    KEEPERS,
    NODEHEAL,
    POLL,
    RATES,
    WHOLE,
    WRITE_SECONDS,
    mtbf_seconds,
)
from nodeheal.domain.jobs.checkpoint_advice import daly_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, which people with colour blindness can tell apart, each with its own mark.
LOOKS = {NODEHEAL: ("#0072B2", "o"), AT_AWS: ("#CC79A7", "D"), BY_HAND: ("#D55E00", "s"), POLL: ("#009E73", "^")}
SIDE = {NODEHEAL: -0.24, AT_AWS: -0.08, BY_HAND: 0.08, POLL: 0.24}
_WAYS = (("#D55E00", "s"), ("#E69F00", "v"), ("#CC79A7", "D"), ("#56B4E9", "^"), ("#0072B2", "o"))  # the same colours
_STYLE: Any = {  # by matplotlib's own names
    "svg.hashsalt": "nodeheal",
    "svg.fonttype": "path",
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def draw(report: dict[str, Any], folder: Path) -> None:
    """Draw fleets.svg, interval.svg, spares.svg and budget.svg."""
    import matplotlib as mpl

    mpl.use("svg")
    with mpl.rc_context(_STYLE):
        _fleets(report["fleets"], folder / "fleets.svg")
        _interval(report["interval"], folder / "interval.svg")
        _spares(report["spares"], folder / "spares.svg")
        _budget(report["budget"], folder / "budget.svg")


def draw_losses(panels: Mapping[str, Mapping[str, Sequence[float]]], sizes: Sequence[int], path: Path) -> None:
    """Draw one plot above the other, by title: ETTR points lost at each size in GPUs, by how a case is noticed."""
    import matplotlib as mpl

    mpl.use("svg")
    with mpl.rc_context(_STYLE):
        figure, grid = _figure(1, len(panels))
        for (axes,), (title, ways) in zip(grid, panels.items(), strict=True):
            for number, (way, points) in enumerate(ways.items()):
                colour, mark = _WAYS[number - len(ways)]
                xs = [size + 0.14 * (number - (len(ways) - 1) / 2) for size in range(len(sizes))]
                axes.plot(xs, points, color=colour, marker=mark, markersize=5, linestyle="none", label=way)
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")
            axes.set_xticks(range(len(sizes)), [f"{size:,}" for size in sizes])
            axes.set_title(title, fontsize=10)
            axes.set_xlabel("GPUs")
            axes.set_ylabel("ETTR points lost")
            axes.legend(frameon=False, fontsize=8, loc="lower right")
        _save(figure, path)


def _figure(columns: int, rows: int = 1) -> tuple[Any, Any]:
    from matplotlib import pyplot

    return pyplot.subplots(
        rows, columns, figsize=(0.6 + 4.1 * columns, 0.6 + 3.1 * rows), squeeze=False, layout="constrained"
    )


def _save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot

    figure.savefig(path, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)


def _points(
    axes: "Axes", keeper: str, xs: list[float], cases: list[dict[str, Any]], what: str = "ettr", line: str = "-"
) -> None:
    colour, mark = LOOKS[keeper]
    means = [100 * case[what]["mean"] for case in cases]
    margins = [100 * (case[what]["margin"] or 0.0) for case in cases]
    axes.errorbar(xs, means, margins, color=colour, marker=mark, linestyle=line, capsize=3, markersize=5, label=keeper)


def _fleets(cases: list[dict[str, Any]], path: Path) -> None:
    rates = [rate for rate in RATES if any(case["rate"] == rate for case in cases)]
    sizes = sorted({case["nodes"] for case in cases})
    figure, grid = _figure(len(rates), 2)
    for row, mix in enumerate((WHOLE, EIGHT)):
        for column, rate in enumerate(rates):
            axes = grid[row][column]
            for keeper in KEEPERS:
                found = {c["nodes"]: c for c in cases if (c["rate"], c["mix"], c["keeper"]) == (rate, mix, keeper)}
                shown = [size for size in sizes if size in found]
                xs = [sizes.index(size) + SIDE[keeper] for size in shown]
                _points(axes, keeper, xs, [found[size] for size in shown], line="none")
            axes.set_xticks(range(len(sizes)), [f"{GPUS_A_NODE * size:,}" for size in sizes])
            axes.set_title(f"{mix}, {rate} ({1_000 * RATES[rate]:.2f})", fontsize=10)
            axes.set_xlabel("GPUs")
        _share_scale(grid[row], "ETTR, %")
    figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
    _save(figure, path)


def _share_scale(row: Any, label: str) -> None:
    low = min(axes.get_ylim()[0] for axes in row)
    high = max(axes.get_ylim()[1] for axes in row)
    for axes in row:
        axes.set_ylim(low, min(high, 100.0))
    row[0].set_ylabel(label)


def _interval(cases: list[dict[str, Any]], path: Path) -> None:
    figure, grid = _figure(1)
    axes = grid[0][0]
    for keeper in KEEPERS:
        mine = [case for case in cases if case["keeper"] == keeper]
        shift = 1 + SIDE[keeper] / 3
        _points(axes, keeper, [shift * case["checkpoint_seconds"] / 60 for case in mine], mine)
    best = daly_seconds(WRITE_SECONDS, mtbf_seconds(120, "RSC-1")) / 60
    axes.axvline(best, color="#555555", linestyle="--", linewidth=1)
    place = {"xycoords": ("data", "axes fraction"), "xytext": (-4, 0), "textcoords": "offset points", "ha": "right"}
    axes.annotate(f"Daly: {best:.0f} min", (best, 0.03), color="#333333", **place)
    axes.set_xscale("log")
    ticks = sorted({case["checkpoint_seconds"] / 60 for case in cases})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel(f"minutes of training between checkpoints, each {WRITE_SECONDS:.0f} s")
    axes.set_ylabel("ETTR, %")
    axes.legend(frameon=False)
    _save(figure, path)


def _spares(cases: list[dict[str, Any]], path: Path) -> None:
    figure, grid = _figure(2)
    for axes, what, label in zip(grid[0], ("ettr", "goodput"), ("ETTR, %", "goodput, % of all nodes"), strict=True):
        for keeper in KEEPERS:
            mine = [case for case in cases if case["keeper"] == keeper]
            _points(axes, keeper, [case["spares"] + SIDE[keeper] / 2 for case in mine], mine, what)
        axes.set_xticks(sorted({case["spares"] for case in cases}))
        axes.set_xlabel("free nodes beside a job of 120")
        axes.set_ylabel(label)
        axes.set_ylim(top=min(100.0, axes.get_ylim()[1]))
    figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
    _save(figure, path)


def _budget(cases: list[dict[str, Any]], path: Path) -> None:
    figure, grid = _figure(1)
    axes = grid[0][0]
    for keeper in (NODEHEAL, AT_AWS):
        mine = [case for case in cases if case["keeper"] == keeper]
        _points(axes, keeper, [case["budget"] + SIDE[keeper] / 2 for case in mine], mine)
    axes.set_xticks(sorted({case["budget"] for case in cases}))
    axes.set_xlabel("nodes of 128 that may be out of service at once")
    axes.set_ylabel("ETTR, %")
    axes.legend(frameon=False)
    _save(figure, path)
