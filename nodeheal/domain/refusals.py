"""Puts an error that means a refusal on the wire, and raises it again on the other side."""

from collections.abc import Mapping
from typing import Never

from pydantic import ValidationError

from nodeheal.contract.acts import ActRefused
from nodeheal.contract.vocabulary import ActRefusal
from nodeheal.domain.complaints import complaints_of
from nodeheal.domain.errors import Conflict, HalfDone, NotAccepted, NotFound


class UnreadableAct(ValueError):
    """A header or a body that cannot be read. Says which, and what is wrong with it."""


_COMPLAINTS = 5  # the first few are enough to act on
_ERRORS: Mapping[ActRefusal, type[Exception]] = {
    ActRefusal.NOT_FOUND: NotFound,
    ActRefusal.CONFLICT: Conflict,
    ActRefusal.HALF_DONE: HalfDone,
    ActRefusal.NOT_NOW: NotAccepted,
    ActRefusal.IN_PROGRESS: NotAccepted,
    ActRefusal.INVALID: ValueError,
    ActRefusal.UNFIT: ValueError,
}
_CODES: Mapping[type[Exception], ActRefusal] = {
    UnreadableAct: ActRefusal.INVALID,  # before ValueError, which it is
    NotFound: ActRefusal.NOT_FOUND,
    Conflict: ActRefusal.CONFLICT,
    HalfDone: ActRefusal.HALF_DONE,
    NotAccepted: ActRefusal.NOT_NOW,
    ValueError: ActRefusal.UNFIT,
}


def refusal_of(error: Exception) -> ActRefused | None:
    """Return the refusal that an error means. None: it is a fault of nodeheal or of AWS."""
    if isinstance(error, ValidationError):  # before ValueError, which it is
        return ActRefused(code=ActRefusal.INVALID, text="; ".join(map(str, complaints_of(error)[:_COMPLAINTS])))
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            return ActRefused(code=code, text=str(error))
    return None


def raise_refusal(refusal: ActRefused) -> Never:
    """Raises NotFound, Conflict, HalfDone, NotAccepted or ValueError, as the control plane did."""
    raise _ERRORS[refusal.code](refusal.text)
