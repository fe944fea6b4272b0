"""Defines the permitted words of an event. Standard library only: the agent cleans by it, the control plane refuses.

Words of a node get into emails, commands to paste, log lines and queries. So none may contain a line break, a special
character of a shell, Markdown or HTML, or one that changes the direction of text.
"""

import re

POOL = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
CLUSTER = r"^[A-Za-z0-9_-]{1,255}$"  # schedulers' names of clusters
# A UUID on Linux. SSM accepts it as a parameter of documents.
BOOT_ID = r"^[A-Za-z0-9][A-Za-z0-9-]{0,63}$"
ADDRESS = r"^[A-Za-z0-9.:-]{0,255}$"  # of IPv4 or IPv6, or a host's name; empty: none
WORD_CHARACTERS = 128
WORD = r"^[A-Za-z0-9/][A-Za-z0-9 ._:/@+=,()#%-]{0,127}$"
# No control character, no line or paragraph separator, none that changes the direction of text.
PATH = r"^[^\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]*$"
# Of an operator's own check: its file's name, as run-parts(8) accepts names, without dots; and its code.
OWN_NAME = r"^[a-z0-9][a-z0-9_-]{0,39}$"
OWN_CODE = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
# Of a GPU: its UUID, or its PCI address as the kernel writes it. SSM accepts it as a parameter of a document.
GPU = r"^(GPU-[0-9a-f-]{36}|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.0)$"
# Of an incident's id: the time of its first event, the end of its node's id, a digest.
INCIDENT = r"^inc-[0-9]{8}T[0-9]{6}-[A-Za-z0-9-]{1,24}-[0-9a-f]{10}$"

_NOT_IN_A_WORD = re.compile(r"[^A-Za-z0-9 ._:/@+=,()#%-]")
_NOT_AT_ITS_BEGINNING = re.compile(r"^[^A-Za-z0-9/]+")


def word(text: str) -> str:
    """Convert a text into a word: forbidden characters become `_`. Never empty."""
    clean = _NOT_AT_ITS_BEGINNING.sub("", _NOT_IN_A_WORD.sub("_", text[:WORD_CHARACTERS]))
    return clean or "unnamed"
