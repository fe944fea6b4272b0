"""Reads Prometheus' text format 0.0.4 strictly, by its specification, and holds names to Prometheus' conventions."""

import math
import re
from dataclasses import dataclass, field

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_HEAD = re.compile(rf"# (?P<word>HELP|TYPE) (?P<name>{_NAME}) (?P<said>.+)")
_SAMPLE = re.compile(rf"(?P<name>{_NAME})(?:\{{(?P<labels>.*)\}})? (?P<value>\S+)")
_LABEL = re.compile(r'(?P<name>[a-zA-Z_][a-zA-Z0-9_]*)="(?P<value>(?:[^"\\\n]|\\["\\n])*)"(?:,|$)')
_TYPES = ("counter", "gauge", "histogram", "summary", "untyped")
_RESERVED = ("job", "instance")  # Prometheus sets these itself
_UNITS = ("bytes", "seconds", "ratio", "celsius", "watts")
Labels = frozenset[tuple[str, str]]


@dataclass
class Family:
    """One metric: its head, and its samples by their labels."""

    help: str = ""
    type: str = ""
    samples: dict[Labels, float] = field(default_factory=dict)


def parse(text: str) -> dict[str, Family]:
    """Every metric by name. Raises AssertionError where the text breaks a rule."""
    assert text.endswith("\n")
    found: dict[str, Family] = {}
    current = ""
    for line in text.splitlines():
        head = _HEAD.fullmatch(line)
        read = head or _SAMPLE.fullmatch(line)
        assert read is not None, line
        if read["name"] != current:
            assert read["name"] not in found, f"{line}: the lines of one metric stand together"
            assert head is not None and head["word"] == "HELP", f"{line}: HELP comes first"
            current = read["name"]
            found[current] = Family()
        _take(found[current], read, is_head=head is not None)
    for name, family in found.items():
        _check_name(name, family)
    return found


def _take(family: Family, read: "re.Match[str]", *, is_head: bool) -> None:
    if is_head:
        assert not family.samples, f"{read.string}: HELP and TYPE come before samples"
        attribute = read["word"].lower()
        assert not getattr(family, attribute), f"{read.string}: given twice"
        setattr(family, attribute, read["said"])
        return
    assert family.type in _TYPES, f"{read.string}: TYPE comes first"
    labels = _labels(read["labels"] or "")
    assert labels not in family.samples, f"{read.string}: given twice"
    family.samples[labels] = float(read["value"])


def _labels(text: str) -> Labels:
    found, at = dict[str, str](), 0
    while at < len(text):
        label = _LABEL.match(text, at)
        assert label is not None, text[at:]
        assert label["name"] not in found and not label["name"].startswith("__"), label["name"]
        assert label["name"] not in _RESERVED, label["name"]
        found[label["name"]] = re.sub(r"\\(.)", lambda one: {"n": "\n"}.get(one[1], one[1]), label["value"])
        at = label.end()
    return frozenset(found.items())


def _check_name(name: str, family: Family) -> None:
    assert family.help and family.type, name
    assert (family.type == "counter") == name.endswith("_total"), f"{name}: counters, and only they, end with _total"
    assert family.type != "counter" or all(value >= 0 and math.isfinite(value) for value in family.samples.values())
    words = name.split("_")
    assert "percent" not in words, f"{name}: base units only"
    units = [word for word in words if word in _UNITS]
    assert not units or "_".join(words[words.index(units[0]) :]).removeprefix(units[0]) in ("", "_total", "_per_second")
