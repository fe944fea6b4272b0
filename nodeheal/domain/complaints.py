"""Translates errors of pydantic into plain words: which field, what is wrong, and what to give. Its only reader."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from nodeheal.contract import names, words
from nodeheal.contract.health_event import NODE_ID_PATTERN
from nodeheal.contract.job_spec import DEVICE, NAME, PLAIN, VARIABLE
from nodeheal.domain.policy.policy_models import FAULT

Place = tuple[int | str, ...]
NO_ALIASES: Mapping[str, str] = MappingProxyType({})
SHOWN_CHARACTERS = 60
LIKENESS = 0.7  # of two names of fields, from 0 to 1: `colour` is not `cluster`

# What to give, by the beginning of the type of pydantic's error.
_KINDS = {
    "string_type": "text",
    "int_": "a whole number",
    "float_": "a number",
    "finite_number": "a finite number",
    "bool_": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "an object of fields",
    "model_": "an object of fields",
    "datetime_": "a date and time, such as 2026-03-01T03:00:00Z",
    "timezone_": "a date and time with its zone, such as 2026-03-01T03:00:00Z",
    "time_": "a time of day, such as 03:00",
}
# What to give, by the type of pydantic's error, which names the limit.
_LIMITS = {
    "greater_than_equal": "is too small; give at least {ge}",
    "greater_than": "is too small; give more than {gt}",
    "less_than_equal": "is too large; give at most {le}",
    "less_than": "is too large; give less than {lt}",
    "string_too_short": "is too short; give at least {min_length} characters",
    "string_too_long": "is too long; give at most {max_length} characters",
    "too_short": "is too short; give at least {min_length} items",
    "too_long": "is too long; give at most {max_length} items",
    "union_tag_invalid": "has another {discriminator}; give {expected_tags}",
    "union_tag_not_found": "has no {discriminator}",
}
# What to give, by the pattern that the text must match.
_PATTERNS = {
    DEVICE: "a path below /dev, of letters, digits and . _ / -",
    FAULT: "family/code or family/code/sub-code, such as xid/79",
    NODE_ID_PATTERN: "the id of a node, such as i-0123456789abcdef0 or mi-0123456789abcdef0",
    PLAIN: "an absolute path of letters, digits and . _ / @ + = , : -",
    VARIABLE: "letters, digits, '_', '.' and '-', no digit first",
    f"^{NAME}$": "lower-case letters, digits and '-', at most 63, no '-' at either end",
    names.CHANNEL_NAME: "lower-case letters, digits and '-', at most 32, a letter first",
    words.CLUSTER: "letters, digits, '_' and '-', at most 255",
    words.POOL: "letters, digits, '.', '_' and '-', at most 64, a letter or digit first",
    r"^[0-9]{12}$": "the 12 digits of an AWS account",
    r"^[a-z]{2}(-[a-z]+)+-[0-9]$": "an AWS Region, such as eu-central-1",
}


@dataclass(frozen=True)
class Complaint:
    """What is wrong at one place of a document. `why`: "is missing", or "2 is too large; give at most 1"."""

    place: Place
    why: str

    @property
    def field(self) -> str:
        """The place as text, with dots. Empty: the whole document."""
        # An error of a key has the key's own place after it.
        return ".".join(str(part) for part in self.place if part != "[key]")

    def __str__(self) -> str:
        return f"{self.field or 'document'}: {self.why}"


def complaints_of(
    error: ValidationError,
    model: type[BaseModel] | None = None,
    *,
    shows_values: bool = False,
    aliases: Mapping[str, str] = NO_ALIASES,
) -> tuple[Complaint, ...]:
    """Returns a complaint for each wrong field.

    `model`: of the whole document, for the names that may have been meant. `shows_values`: only for the document of the
    person who reads it, because a message may contain a task token. `aliases`: other names of fields.
    """
    return tuple(_complaint(detail, model, shows_values, aliases) for detail in error.errors())


def _complaint(
    error: ErrorDetails, model: type[BaseModel] | None, shows_values: bool, aliases: Mapping[str, str]
) -> Complaint:
    place, kind, context = error["loc"], error["type"], error.get("ctx", {})
    is_shown = shows_values and isinstance(error["input"], str | int | float)
    given = f"{_shown(error['input'])} " if is_shown else ""
    if kind == "value_error":
        return _own_words(place, str(context["error"]), model)
    if kind == "missing":
        return Complaint(place, "is missing")
    if kind == "extra_forbidden":
        return Complaint(place, f"there is no such field{_meant(place, model, aliases)}")
    if kind == "json_invalid":
        return Complaint(place, f"not JSON: {context['error']}")
    if kind == "string_type" and is_shown:
        return Complaint(place, f"text is wanted; put it in quotes: {json.dumps(_shown(error['input']))}")
    if kind == "string_pattern_mismatch":
        pattern = context["pattern"]
        return Complaint(place, f"{given}does not fit; give {_PATTERNS.get(pattern, f'text that matches {pattern}')}")
    if kind in ("enum", "literal_error"):
        expected = str(context["expected"])
        near = _nearest(error["input"], expected)
        return Complaint(place, f"{given}is not known; give {expected.replace(chr(39), '')}{near}")
    if kind.endswith("too_short") and context["min_length"] == 1:
        return Complaint(place, "is empty")
    if kind in _LIMITS:
        return Complaint(place, f"{given}{_LIMITS[kind].format_map(context)}")
    wanted = next((words for beginning, words in _KINDS.items() if kind.startswith(beginning)), "")
    if wanted and kind.endswith("_parsing"):
        return Complaint(place, f"{given}is not {wanted}")
    if wanted:
        return Complaint(place, f"{given}is {_kind(error['input'])}; give {wanted}")
    return Complaint(place, f"{given}is not valid ({kind.replace('_', ' ')})")


def _own_words(place: Place, text: str, model: type[BaseModel] | None) -> Complaint:
    """A check of several fields names in its message the field that is to be changed."""
    match = re.match(r"(\w+(?:\.[\w-]+)*): (.*)", text, re.DOTALL)
    inside = _model_at(model, place)
    if match and inside and match[1].split(".")[0] in inside.model_fields:
        return Complaint((*place, *match[1].split(".")), match[2])
    return Complaint(place, text)


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int():
            return "a whole number"
        case float():
            return "a number with a fraction"
        case str():
            return "text"
        case Mapping():
            return "an object"
    return "a list"


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, default=str)[:SHOWN_CHARACTERS]


def _nearest(given: object, expected: str) -> str:
    """The word that was probably meant, of those that stand quoted in `expected`. Empty: none is like it."""
    if not isinstance(given, str):
        return ""
    by_letters = {word.casefold(): word for word in re.findall(r"'([^']*)'", expected)}
    alike = get_close_matches(given.strip().casefold(), by_letters, n=1)
    return f"; did you mean `{by_letters[alike[0]]}`?" if alike else ""


def _meant(place: Place, model: type[BaseModel] | None, aliases: Mapping[str, str]) -> str:
    """The field that may have been meant: one of the same object, or one of this name elsewhere in the document."""
    if model is None:
        return ""
    *above, given = map(str, place)
    inside = _model_at(model, place[:-1])
    known = list(inside.model_fields) if inside else []
    alias = aliases.get(given)
    begun = [name for name in known if name.startswith(f"{given}_")]
    alike = [alias] if alias in known else begun or get_close_matches(given.casefold(), known, n=1, cutoff=LIKENESS)
    if alike:
        return f"; did you mean `{alike[0]}`?"
    below = (".".join((*above, *path)) for path in _paths(inside) if path[-1] == given)
    anywhere = (".".join(path) for path in _paths(model) if path[-1] == given)
    elsewhere = next(below, None) or next(anywhere, None)
    return f" here; did you mean `{elsewhere}`?" if elsewhere else f"; there are {', '.join(known)}"


def _model_at(kind: Any, place: Place) -> type[BaseModel] | None:
    """The model of what stands at this place. None: there is no object of fields."""
    for part in place:
        kind = _type_below(kind, str(part))
    return _model_in(kind)


def _type_below(kind: Any, part: str) -> Any:
    model = _model_in(kind)
    if model is not None:
        return model.model_fields[part].annotation if part in model.model_fields else None
    return next((inner for option in (kind, *get_args(kind)) if (inner := _items_of(option))), None)


def _items_of(kind: Any) -> Any:
    """The type of a list's items, or of an object's values."""
    origin = get_origin(kind)
    return get_args(kind)[1 if origin is dict else 0] if origin in (dict, tuple, list) else None


def _model_in(kind: Any) -> type[BaseModel] | None:
    """The model that this type is, or may be."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    if get_origin(kind) in (dict, tuple, list):
        return None
    options = get_args(kind)[:1] if get_origin(kind) is Annotated else get_args(kind)
    return next((model for option in options if (model := _model_in(option))), None)


def _paths(kind: Any) -> Iterator[tuple[str, ...]]:
    """Every field below this type; NAME and N stand for an object's key and a list's place."""
    model = _model_in(kind)
    if model is not None:
        for name, field in model.model_fields.items():
            yield (name,)
            yield from ((name, *path) for path in _paths(field.annotation))
        return
    for option in (kind, *get_args(kind)):
        if items := _items_of(option):
            step = "NAME" if get_origin(option) is dict else "N"
            yield from ((step, *path) for path in _paths(items))
            return
