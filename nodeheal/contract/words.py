"""What the words of an event may look like. Standard library only: the agent cleans by it, the control plane refuses.

Words of a node end up in emails, commands to paste, log lines and queries. So none holds a line break, a character that
a shell, Markdown or HTML would obey, or one that turns the direction of text.
"""

import re

POOL = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
CLUSTER = r"^[A-Za-z0-9_-]{1,255}$"  # as schedulers name clusters
# A UUID on Linux. SSM takes it as a parameter of documents.
BOOT_ID = r"^[A-Za-z0-9][A-Za-z0-9-]{0,63}$"
ADDRESS = r"^[A-Za-z0-9.:-]{0,255}$"  # of IPv4 or IPv6, or a host's name; empty: none
WORD_CHARACTERS = 128
WORD = r"^[A-Za-z0-9/][A-Za-z0-9 ._:/@+=,()#%-]{0,127}$"
# No control character, no line or paragraph separator, nothing that turns the direction of text.
PATH = r"^[^\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]*$"
# Of a check of the operator's own: its file's name, as run-parts(8) takes names, without dots; and what it finds.
OWN_NAME = r"^[a-z0-9][a-z0-9_-]{0,39}$"
OWN_CODE = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
# Of a GPU: its UUID, or its PCI address as the kernel writes it. SSM takes it as a parameter of a document.
GPU = r"^(GPU-[0-9a-f-]{36}|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.0)$"
# Of an incident's id: the time of its first event, the end of its node's id, a digest.
INCIDENT = r"^inc-[0-9]{8}T[0-9]{6}-[A-Za-z0-9-]{1,24}-[0-9a-f]{10}$"

_NOT_IN_A_WORD = re.compile(r"[^A-Za-z0-9 ._:/@+=,()#%-]")
_NOT_AT_ITS_BEGINNING = re.compile(r"^[^A-Za-z0-9/]+")


def word(text: str) -> str:
    """The text as a word: what may not be in one becomes `_`. Never empty."""
    clean = _NOT_AT_ITS_BEGINNING.sub("", _NOT_IN_A_WORD.sub("_", text[:WORD_CHARACTERS]))
    return clean or "unnamed"
