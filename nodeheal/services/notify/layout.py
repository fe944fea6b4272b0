"""How an email is laid out: labels on the left, lines that fit, and nothing that a node could pass off as ours."""

import re
import shlex
import textwrap

WIDTH = 100
_LABEL = 11
# Mail programs make a link of a host's name with a path behind it, too.
_LINKS = re.compile(
    r"(?i)(?<=[a-z0-9+.-]):(?=//)|\b(?:mailto|javascript|data|tel):|\bwww\.|(?<=[a-z0-9])\.(?=[a-z]{2,24}(?::\d{1,5})?[/?#])"
)


def plain(text: str, characters: int = 2_000) -> str:
    """The text on one line, printable, of bounded length, and without anything that a mail program makes a link of."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    line = _LINKS.sub(lambda found: f"{found[0][:-1]}[{found[0][-1]}]", line)
    return line if len(line) <= characters else f"{line[:characters]} ..."


def field(label: str, text: str) -> list[str]:
    """A label and what it says, with every further line below the first word."""
    return _wrapped(plain(text), label.ljust(_LABEL), " " * _LABEL)


def quoted(label: str, text: str) -> list[str]:
    """What somebody else said: each line is marked, so that none can be taken for a label of ours."""
    bar = "| "
    return _wrapped(plain(text, 1_000) or "(nothing)", label.ljust(_LABEL) + bar, " " * _LABEL + bar)


def link(label: str, address: str) -> str:
    """An address of ours. It is never broken, however long it is."""
    return f"{label.ljust(_LABEL)}{address}"


def command(*words: str) -> str:
    """A line to paste. It is never broken either, and a shell runs this one command, whatever its words are."""
    return f"{' ' * (_LABEL + 2)}{shlex.join(words)}"


def paragraph(text: str, indent: str = "", hanging: str = "") -> list[str]:
    """A sentence or more, in lines that fit."""
    return _wrapped(plain(text), indent, hanging)


def _wrapped(text: str, first: str, others: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=others, break_on_hyphens=False) or [
        first.rstrip()
    ]
