"""The owner of a job, who is notified about it."""

import re
from dataclasses import dataclass

# What mail programs agree on: anything longer or odder is a slip of the keyboard.
_ADDRESS = re.compile(r"[a-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}")
_NAMED = re.compile(r"(?P<name>[^<>]*)<(?P<address>[^<>]*)>")
LONGEST_ADDRESS, LONGEST_NAME = 254, 80


@dataclass(frozen=True)
class Owner:
    """An address in lower case, by which subscriptions are matched exactly, and a name."""

    address: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.name} <{self.address}>" if self.name else self.address


def parse_owner(text: str) -> Owner:
    """Reads `ada@example.com`, or `Ada Lovelace <ada@example.com>`. Raises ValueError that names the text."""
    match = _NAMED.fullmatch(text.strip())
    name, address = (match["name"], match["address"]) if match else ("", text)
    name, address = " ".join(name.split()).strip('"'), address.strip().lower()
    if not _ADDRESS.fullmatch(address) or len(address) > LONGEST_ADDRESS:
        raise ValueError(f"{text!r} is not an email address; give ada@example.com, or Ada Lovelace <ada@example.com>")
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise ValueError(f"{text!r}: a name has at most {LONGEST_NAME} characters, all of them printable")
    return Owner(address, name)
