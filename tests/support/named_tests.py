"""Reads which tests a module holds."""

import ast
from functools import cache

from stacks.settings import REPOSITORY


@cache
def names_in(path: str) -> frozenset[str]:
    """The names of a module's tests; empty where there is no such module."""
    file = REPOSITORY / path
    if not file.is_file():
        return frozenset()
    return frozenset(each.name for each in ast.parse(file.read_text("utf-8")).body if isinstance(each, ast.FunctionDef))
