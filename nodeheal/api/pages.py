"""Pages of long lists: how many rows are wanted, and the cursor after which the next ones come."""

import json
import re
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Generic, TypeVar

from nodeheal.api.base_view import View
from nodeheal.contract.json_text import read_json

LONGEST_CURSOR = 1_024
_NAMED = 60  # characters of a cursor that an error names
_READ_AT_ONCE = 1_000
_PART = re.compile(r"[A-Za-z0-9._:/+-]{0,256}")
RowT = TypeVar("RowT")
RecordT = TypeVar("RecordT")


class ListKind(StrEnum):
    """A list that has pages. A cursor is valid for one list only."""

    nodes = "nodes"
    incidents = "incidents"
    jobs = "jobs"


@dataclass(frozen=True)
class Page:
    """A part of a list. `limit`: at most so many rows; None: all. `after`: a cursor; empty: from the beginning."""

    limit: int | None = None
    after: str = ""

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit: {self.limit} is no number of rows; give 1 or more")

    @property
    def is_part(self) -> bool:
        """Whether it is not the whole list that is wanted."""
        return self.limit is not None or bool(self.after)

    @property
    def read_at_once(self) -> int | None:
        """How many records a request reads: the page, and one that shows whether another follows."""
        return None if self.limit is None else min(self.limit + 1, _READ_AT_ONCE)


WHOLE = Page()


class Rows(View, Generic[RowT]):
    """The rows of a page. `next`: the cursor of the page after it; None: the list ends here."""

    rows: tuple[RowT, ...]
    next: str | None


def take(
    records: Iterable[RecordT], page: Page, kind: ListKind, key: Callable[[RecordT], Sequence[str]]
) -> tuple[list[RecordT], str | None]:
    """Return the records of this page and the next page's cursor. `key`: a record's place in the list."""
    if page.limit is None:
        return list(records), None
    following = list(islice(records, page.limit + 1))
    shown = following[: page.limit]
    return shown, _cursor(kind, key(shown[-1])) if len(following) > page.limit else None


def place_of(page: Page, kind: ListKind, parts: int) -> tuple[str, ...] | None:
    """Return the place after which the page begins, in so many parts. None: at the list's beginning.

    Raises ValueError, which names the cursor, for anything that is no cursor of this list.
    """
    if not page.after:
        return None
    try:
        cursor = _parsed(page.after)
    except ValueError:
        cursor = None
    if not isinstance(cursor, list) or len(cursor) != parts + 1 or not all(map(_is_part_of_place, cursor)):
        raise bad_cursor(page.after, kind)
    if cursor[0] != kind:
        raise bad_cursor(page.after, kind)
    return tuple(cursor[1:])


def bad_cursor(cursor: str, kind: ListKind, why: str = "") -> ValueError:
    """Return the error for a cursor that does not fit this list."""
    named = cursor if len(cursor) <= _NAMED else f"{cursor[:_NAMED]}…"
    return ValueError(f"{named!r} is no cursor of this list of {kind}{why}; give that of the page before")


def _cursor(kind: ListKind, place: Sequence[str]) -> str:
    text = json.dumps([kind, *place], separators=(",", ":"))
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _is_part_of_place(part: object) -> bool:
    """Whether it may be an id, a name or a time: they have no other characters."""
    return isinstance(part, str) and _PART.fullmatch(part) is not None


def _parsed(cursor: str) -> object:
    if len(cursor) > LONGEST_CURSOR:
        raise ValueError("too long")
    return read_json(b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
