"""Takes one guard out of a function, as a careless edit would, for as long as a test wants."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def without(function: Callable[..., Any], guard: str, becomes: str = "False", nth: int = 0) -> Iterator[None]:
    """The function with this expression replaced, for everybody who has it. An AssertionError: it is not there once.

    `nth`: which of several that read the same, counted from 1.
    """
    function = inspect.unwrap(function)  # what a decorator wraps is what runs, and what has the source
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    assert isinstance(tree.body[0], ast.FunctionDef)
    tree.body[0].decorator_list = []  # of a property, its function is given
    swap = _Swap(guard, becomes, nth)
    swap.visit(tree)
    is_found = 1 < swap.times >= nth if nth else swap.times == 1
    assert is_found, f"{function.__qualname__}: {guard!r} stands there {swap.times} times; say what it is now"
    made: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(tree), "<without a guard>", "exec"), function.__globals__, made)
    code = function.__code__
    function.__code__ = made[function.__name__].__code__
    try:
        yield
    finally:
        function.__code__ = code


class _Swap(ast.NodeTransformer):
    def __init__(self, guard: str, becomes: str, nth: int) -> None:
        self._guard, self._becomes, self._nth = _expression(guard), becomes, nth
        self._text = ast.unparse(self._guard)
        self.times = 0

    def generic_visit(self, node: ast.AST) -> ast.AST:
        # A name that is written to is no expression: what is kept for later can be named where it is read.
        is_read = isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        if isinstance(node, ast.expr) and is_read and ast.unparse(node) == self._text:
            self.times += 1
            return ast.copy_location(_expression(self._becomes), node) if self._nth in (0, self.times) else node
        return super().generic_visit(node)


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body
