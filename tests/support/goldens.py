"""Recorded outputs of tools, in the shapes that their documents and sources give."""

from pathlib import Path

DIRECTORY = Path(__file__).parents[1] / "golden" / "tools"


def golden(name: str) -> str:
    """The text of one recording."""
    return (DIRECTORY / name).read_text("utf-8")


def names(*patterns: str) -> list[str]:
    """The recordings whose names fit."""
    return sorted({path.name for pattern in patterns for path in DIRECTORY.glob(pattern)})


def cut_off(name: str, stride: int = 29) -> list[str]:
    """What is left of a recording cut off here and there: at every line's end, all over its end, and in between."""
    text = golden(name).rstrip()
    line_ends = [at for at, character in enumerate(text) if character == "\n"][:: 1 + len(text) // 8000]
    places = {*range(0, len(text), stride + len(text) // 400), *range(max(0, len(text) - 80), len(text))}
    return [text[:place] for place in sorted(places | set(line_ends) | {end + 1 for end in line_ends})]


def efa_cards(number: int) -> str:
    """What fi_info says of a node with so many EFA cards."""
    blocks = golden("efa_fi_info_healthy.txt").split("provider: ")[1 : 1 + 2 * number]
    return "".join(f"provider: {block}" for block in blocks)
