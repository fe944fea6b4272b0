"""How an email is laid out: short labels, one line a paragraph, and nothing that a node could pass off as ours.

The mail program wraps the lines, for a phone as for a desk.
"""

import re
import shlex

# Mail programs make a link of a host's name with a path behind it, too.
_LINKS = re.compile(
    r"(?i)(?<=[a-z0-9+.-]):(?=//)|\b(?:mailto|javascript|data|tel):|\bwww\.|(?<=[a-z0-9])\.(?=[a-z]{2,24}(?::\d{1,5})?[/?#])"
)
# A phone may begin a line with any word of a paragraph. Only a label of ours asks for something.
_LABELS = re.compile(r"\b(?:N(?i:eeded)|A(?i:pprove)|R(?i:efuse)|R(?i:unbook)|I(?i:ncident)):")


def plain(text: str, characters: int = 2_000) -> str:
    """The text on one line, printable, of bounded length, and without a link or a label that asks for something."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    for broken in (_LINKS, _LABELS):
        line = broken.sub(lambda match: f"{match[0][:-1]}[{match[0][-1]}]", line)
    return line if len(line) <= characters else f"{line[:characters]} ..."


def field(label: str, text: str) -> list[str]:
    """A label and what it says."""
    return [f"{label}: {plain(text)}"]


def quoted(label: str, text: str) -> list[str]:
    """What somebody else said: a marked line of its own, so that it can be taken for nothing of ours."""
    return [f"{label}:", f"| {plain(text, 1_000) or '(nothing)'}"]


def link(label: str, address: str) -> list[str]:
    """An address of ours, whole and on a line of its own."""
    return [f"{label}:", address]


def command(*words: str) -> str:
    """A line to paste. A shell runs this one command, whatever its words are."""
    return f"  {shlex.join(words)}"


def paragraph(text: str) -> list[str]:
    """A sentence or more."""
    return [plain(text)]


def sentence(text: str) -> str:
    """The text with a capital at its beginning and a full stop at its end."""
    ended = text if text.endswith((".", "!", "?", ":")) else f"{text}."
    return f"{ended[:1].upper()}{ended[1:]}"
