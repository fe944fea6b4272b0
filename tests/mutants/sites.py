"""Where guards stand: expressions whose answer keeps something from being done, read off the source.

A guard is taken out by ignoring its answer. It is still asked, so that what it writes or binds is there, and then it is
taken to have said `becomes`. No expression is read as a guard by what it says, only by where it stands.
"""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.reads import READS

ROOT = Path(__file__).resolve().parents[2]
_CLAIMS = ("is_", "has_", "may_", "was_", "can_", "should_", "are_", "asks_", "needs_")
_QUANTIFIERS = ("any", "all", "bool", "isinstance", "issubclass")


@dataclass(frozen=True)
class Site:
    """One expression of one function, and the answer that it is taken to give. `nth`: of those that read the same."""

    module: str
    function: str
    expression: str
    becomes: bool
    nth: int
    path: str
    line: int
    is_bound: bool = False  # a comparison that is changed for two equal values only

    @property
    def where(self) -> str:
        """As a row of harmless.csv names it."""
        return f"{self.module}.{self.function}"

    @property
    def key(self) -> str:
        """What no other site has, and what stays when lines move."""
        becomes = f"{self.becomes} at equality" if self.is_bound else self.becomes
        return f"{self.where}: {self.expression} -> {becomes} #{self.nth}"

    def __str__(self) -> str:
        again = f" (the {self.nth}. of them)" if self.nth > 1 else ""
        at_equality = " at equality" if self.is_bound else ""
        return f"{self.path}:{self.line}: {self.where}: {self.expression} -> {self.becomes}{at_equality}{again}"


Found = tuple[str, ast.expr, bool]


def find_sites(module: str, tree: ast.Module, path: Path) -> list[tuple[Site, ast.expr]]:
    """All of a module, in the order in which they stand, each with its node of the tree."""
    seen: Counter[tuple[str, str, bool]] = Counter()
    found: dict[tuple[int, bool], tuple[Site, ast.expr]] = {}
    near = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    for function, node, becomes in sorted(_in_block(tree.body, ()), key=lambda one: (one[1].lineno, one[1].col_offset)):
        if (id(node), becomes) in found:
            continue
        text = ast.unparse(node)
        seen[function, text, becomes] += 1
        nth = seen[function, text, becomes]
        found[id(node), becomes] = Site(module, function, text, becomes, nth, str(near), node.lineno), node
    return list(found.values())


def find_bounds(module: str, tree: ast.Module, path: Path) -> list[tuple[Site, ast.Compare]]:
    """Every comparison by size in a function: `<` is to be taken for `<=`, `>` for `>=`, and the reverse."""
    seen: Counter[tuple[str, str]] = Counter()
    found = []
    near = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    for function, node in _comparisons(tree.body, ()):
        text = ast.unparse(node)
        seen[function, text] += 1
        becomes = isinstance(node.ops[0], ast.Lt | ast.Gt)
        site = Site(module, function, text, becomes, seen[function, text], str(near), node.lineno, is_bound=True)
        found.append((site, node))
    return found


def _comparisons(body: Iterable[ast.stmt], within: tuple[str, ...]) -> Iterator[tuple[str, ast.Compare]]:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield from _comparisons(statement.body, (*within, statement.name))
        elif isinstance(statement, ast.FunctionDef):
            name = ".".join((*within, statement.name))
            yield from (
                (name, node) for node in ast.walk(statement) if isinstance(node, ast.Compare) and _by_size(node)
            )


def _by_size(node: ast.Compare) -> bool:
    return len(node.ops) == 1 and isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE)


def _in_block(body: Iterable[ast.stmt], within: tuple[str, ...]) -> Iterator[Found]:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield from _in_block(statement.body, (*within, statement.name))
        elif isinstance(statement, ast.FunctionDef):
            yield from _in_function(statement, (*within, statement.name))


def _in_function(function: ast.FunctionDef, within: tuple[str, ...]) -> Iterator[Found]:
    says_whether = isinstance(function.returns, ast.Name) and function.returns.id == "bool"
    for node in _own(function):
        if isinstance(node, ast.FunctionDef):
            yield from _in_function(node, (*within, node.name))
        else:
            yield from ((".".join(within), *one) for one in _of_node(node, says_whether))


def _own(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """What stands in a function, and not in one that is defined in it."""
    left: list[ast.AST] = list(reversed(function.body))
    while left:
        node = left.pop()
        yield node
        if not isinstance(node, ast.FunctionDef):
            left += reversed(list(ast.iter_child_nodes(node)))


def _of_node(node: ast.AST, says_whether: bool) -> Iterator[tuple[ast.expr, bool]]:
    match node:
        case ast.If(test=asked) | ast.match_case(guard=ast.expr() as asked):
            yield from _answered(asked)
            yield from _asked(asked)
        case ast.comprehension(ifs=all_asked):
            for asked in all_asked:
                yield from _answered(asked)
                yield from _asked(asked)
        case ast.IfExp(test=asked):
            yield from _of_choice(node)
            yield from _asked(asked)
        case ast.While(test=asked):
            yield from _asked(asked)
        case ast.Return(value=ast.expr() as value) if says_whether and _is_claim(value):
            yield from _answered(value)
            yield from _asked(value)
        case ast.Return(value=ast.IfExp() as value):
            yield from _of_reason(value)
        case ast.Assign(value=ast.BoolOp() as value) | ast.keyword(value=ast.BoolOp() as value) if _is_claim(value):
            yield from _answered(value)
        case ast.BoolOp() if _is_claim(node):
            yield from _asked(node)


def _answered(asked: ast.expr) -> Iterator[tuple[ast.expr, bool]]:
    """Taken to say yes, and to say no. One of these an `and` or an `or` says already where an operand is left out."""
    yield from ((asked, becomes) for becomes in (True, False) if not _is(asked, ast.And if becomes else ast.Or))


def _of_choice(node: ast.IfExp) -> Iterator[tuple[ast.expr, bool]]:
    """Something or nothing: a guard. Words beside no words are none."""
    if _is_empty(node.orelse) is not _is_empty(node.body) and not any(map(_is_words, (node.body, node.orelse))):
        yield from _answered(node.test)


def _of_reason(value: ast.IfExp) -> Iterator[tuple[ast.expr, bool]]:
    """A reason why not, or no words, which is none."""
    if not _is_words(value.body) and not _is_words(value.orelse):
        return
    if _is_empty(value.orelse) and not _is_empty(value.body):
        yield value.test, False
    elif _is_empty(value.body) and not _is_empty(value.orelse):
        yield value.test, True


def _asked(asked: ast.expr) -> Iterator[tuple[ast.expr, bool]]:
    """Each operand left out; a write whose refusal is ignored."""
    if isinstance(asked, ast.BoolOp):
        neutral = isinstance(asked.op, ast.And)
        for operand in asked.values:
            if not isinstance(operand, ast.BoolOp):
                yield operand, neutral
            yield from _asked(operand)
    elif isinstance(asked, ast.UnaryOp) and isinstance(asked.op, ast.Not):
        yield from _asked(asked.operand)
    elif _is_write(asked):
        yield asked, True


def _is(node: ast.expr, operator: type[ast.boolop]) -> bool:
    return isinstance(node, ast.BoolOp) and isinstance(node.op, operator)


def _is_write(node: ast.expr) -> bool:
    """A call of a port that may be refused."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    names = ast.unparse(node.func.value).split(".")
    return "ports" in names[:-1] and node.func.attr not in READS


def _is_claim(node: ast.expr) -> bool:
    """Whether it answers yes or no: `a or b` with anything else is a default, and no guard."""
    match node:
        case ast.Compare() | ast.UnaryOp(op=ast.Not()):
            return True
        case ast.BoolOp():
            return _is_claim(node.values[-1])
        case ast.Call(func=ast.Name(id=name)):
            return name in _QUANTIFIERS or name.lstrip("_").startswith(_CLAIMS)
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Call(func=ast.Attribute(attr=name)):
            return name.lstrip("_").startswith(_CLAIMS)
    return False


def _is_empty(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=value):
            return not value
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Dict(values=parts):
            return not parts
        case ast.Call(args=[], keywords=[], func=ast.Name(id="set" | "frozenset" | "dict" | "list" | "tuple")):
            return True
    return False


def _is_words(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    if isinstance(node, ast.BinOp):
        return _is_words(node.left) or _is_words(node.right)
    return isinstance(node, ast.JoinedStr)
