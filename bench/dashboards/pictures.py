"""Draws the pictures of docs/dashboards: each panel at its dashboard's place."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS, UNIT_WIDE, UNIT_HIGH = 24, 0.5, 0.26  # of Grafana's grid; inches
DOTS_AN_INCH, ROWS_SHOWN, MANY = 85, 9, 10_000
NAMES_SHOWN = {False: 6, True: 2}  # by whether the panel is narrow
GREEN, RED, GREY = "#2e8b57", "#c0392b", "#777777"
# Okabe and Ito's colours, which people with colour blindness can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933")
_SCALES = {"percentunit": (100, "%"), "bytes": (2.0**-30, "GiB"), "Bps": (1e-6, "MB/s"), "celsius": (1, "°C")}
_SCALES |= {"watt": (1e-3, "kW"), "s": (1, "s"), "ops": (1, "per s")}
_STYLE: Any = {"font.size": 7, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True}
_STYLE |= {"grid.color": "#e5e5e5", "axes.axisbelow": True, "axes.titlesize": 8, "axes.titleweight": "bold"}
_HIDDEN = ("__name__", "instance", "job")


def draw(collected: Mapping[str, Any], folder: Path) -> None:
    """Draw fleet.png, node.png and nodes.png."""
    import matplotlib as mpl

    mpl.use("agg")
    with mpl.rc_context(_STYLE):
        for name in ("fleet", "node"):
            _page(collected[name], collected["span"], folder / f"{name}.png")
        _page(_laid_out(collected["nodes"]), collected["span"], folder / "nodes.png")


def _laid_out(rows: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return CloudWatch's rows of equal widgets in the form of Grafana's panels."""
    found = []
    for number, row in enumerate(rows):
        width = COLUMNS // len(row)
        for place, graph in enumerate(row):
            grid = {"x": width * place, "y": 8 * number, "w": width, "h": 8}
            found.append({**graph, "type": "timeseries", "gridPos": grid, "fieldConfig": {"defaults": {}}})
    return found


def _page(panels: Sequence[Mapping[str, Any]], span: Sequence[float], file: Path) -> None:
    from matplotlib.figure import Figure

    high = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) + 0.5
    figure = Figure(figsize=(COLUMNS * UNIT_WIDE, high * UNIT_HIGH), dpi=DOTS_AN_INCH)
    for panel in panels:
        at = panel["gridPos"]
        margins = (1.6, 1.5) if panel["type"] in ("timeseries", "state-timeline") else (0.3, 0.9)
        left, width = (at["x"] + margins[0]) / COLUMNS, (at["w"] - margins[0] - 0.4) / COLUMNS
        axes = figure.add_axes(
            (left, 1 - (at["y"] + at["h"] - margins[1]) / high, width, (at["h"] - margins[1] - 1) / high)
        )
        axes.set_title(panel["title"], loc="left")
        _DRAWERS[panel["type"]](axes, panel, span)
    figure.savefig(file, metadata={"Software": None})
    _with_few_colours(file)


def _with_few_colours(file: Path) -> None:
    from PIL import Image

    with Image.open(file) as image:
        small = image.convert("RGB").quantize(colors=64)
    small.save(file, optimize=True)


def _stat(axes: "Axes", panel: Mapping[str, Any], _: Sequence[float]) -> None:
    axes.axis("off")
    unit = panel["fieldConfig"]["defaults"]["unit"]
    factor, word = _SCALES.get(unit, (1, ""))
    many = len(panel["answers"])
    for number, answer in enumerate(panel["answers"]):
        value = answer["values"][-1][1]
        colour = _coloured(value, panel["fieldConfig"]["defaults"].get("thresholds"))
        text = f"{value * factor:.3g} {word}".rstrip()
        axes.text((number + 0.5) / many, 0.35, text, ha="center", va="center", fontsize=17, color=colour)
        if many > 1:
            axes.text((number + 0.5) / many, -0.2, answer["name"], ha="center", va="center", color=GREY)


def _coloured(value: float, thresholds: Mapping[str, Any] | None) -> str:
    colour = GREY
    for step in thresholds["steps"] if thresholds else ():
        if step["value"] is None or value >= step["value"]:
            colour = {"green": GREEN, "red": RED}[step["color"]]
    return colour


def _table(axes: "Axes", panel: Mapping[str, Any], span: Sequence[float]) -> None:
    axes.axis("off")
    now = [answer["labels"] for answer in panel["answers"] if answer["values"][-1][0] > span[1] - 10]
    names = sorted({name for labels in now for name in labels} - {*_HIDDEN})
    rows = [[labels.get(name, "") for name in names] for labels in now][:ROWS_SHOWN]
    if rows:
        widths = [max(len(str(cell)) for cell in column) + 2 for column in zip(names, *rows, strict=True)]
        table = axes.table(
            rows, colLabels=names, colWidths=[width / sum(widths) for width in widths], loc="upper left", cellLoc="left"
        )
        table.auto_set_font_size(False)
        table.set_fontsize(6.5)


def _lines(axes: "Axes", panel: Mapping[str, Any], span: Sequence[float]) -> None:
    from matplotlib.ticker import EngFormatter

    factor, word = _SCALES.get(panel["fieldConfig"]["defaults"].get("unit", ""), (1, ""))
    is_narrow = panel["gridPos"]["w"] < COLUMNS // 2
    for number, answer in enumerate(panel["answers"]):
        minutes, values = _in_minutes(answer["values"], span)
        name = answer["name"] if number < NAMES_SHOWN[is_narrow] else None
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(minutes, [value * factor for value in values], color=colour, lw=1, label=name, marker=".", ms=1.5)
    axes.set_xlim(0, (span[1] - span[0]) / 60)
    axes.set_ylabel(word)
    axes.margins(y=0.15)
    axes.set_ylim(bottom=0)
    if axes.get_ylim()[1] > MANY:
        axes.yaxis.set_major_formatter(EngFormatter())
    else:
        axes.ticklabel_format(axis="y", useOffset=False)
    if panel["answers"]:
        below, columns = (0.5, -0.1), 2 if is_narrow else 3
        axes.legend(loc="upper center", bbox_to_anchor=below, ncols=columns, frameon=False, fontsize=5.5)


def _in_minutes(values: Sequence[Sequence[float]], span: Sequence[float]) -> tuple[list[float], list[float]]:
    """Resample to minutes, with a gap where there is no value, as Grafana draws it."""
    times = [at for at, _ in values]
    usual = min((after - before for before, after in itertools.pairwise(times)), default=0.0)
    minutes, found = list[float](), list[float]()
    for number, (at, value) in enumerate(values):
        if number and at - times[number - 1] > 3 * usual:
            minutes.append((at - span[0]) / 60)
            found.append(float("nan"))
        minutes.append((at - span[0]) / 60)
        found.append(value)
    return minutes, found


def _states(axes: "Axes", panel: Mapping[str, Any], span: Sequence[float]) -> None:
    step = 5 / 60
    for row, answer in enumerate(panel["answers"]):
        for value, colour in ((1.0, GREEN), (0.0, RED)):
            spans = [((at - span[0]) / 60, step) for at, found in answer["values"] if found == value]
            axes.broken_barh(spans, (row - 0.4, 0.8), facecolors=colour)
    axes.set_yticks(range(len(panel["answers"])), [answer["name"] for answer in panel["answers"]])
    axes.set_xlim(0, (span[1] - span[0]) / 60)
    axes.invert_yaxis()


_DRAWERS = {"stat": _stat, "table": _table, "timeseries": _lines, "state-timeline": _states}
