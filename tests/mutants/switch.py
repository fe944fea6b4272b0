"""Every guard of the modules that are looked through can be taken out, by its number, while the program runs.

The modules are read with a question around each guard. It costs nothing to take one out or put it back, and it is
known of a test whether it would matter: whether any answer was another than the one that is to be ignored.
"""

import ast
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import _lru_cache_wrapper
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from operator import ge, gt, le, lt
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from tests.mutants.sites import Site, find_bounds, find_sites

_ASK, _COMPARE = "_is_it", "_compare"
_BY_SIZE: dict[str, Callable[[Any, Any], Any]] = {"Lt": lt, "LtE": le, "Gt": gt, "GtE": ge}
_ASK_NOBODY = {"nodeheal.domain.faults.catalog"}  # what it remembers stands in a file


class Switch(MetaPathFinder):
    """The guards of these modules, given with their files: none is out. It must be there before they are imported."""

    def __init__(self, sources: Mapping[str, Path], *, with_bounds: bool = False) -> None:
        self._with_bounds = with_bounds
        self.sites: list[Site] = []
        self.mattered: set[int] = set()  # guards that gave another answer than the one that is to be ignored
        self._out: int | None = None
        early = sys.modules.keys() & sources.keys()
        assert not early, f"imported already: {sorted(early)}"
        self._codes = {module: self._compiled(module, path) for module, path in sources.items()}

    def take_out(self, number: int | None) -> None:
        """Only this one. What functions remember was answered with another code, and is forgotten."""
        self._out = number
        for name, module in list(sys.modules.items()):
            if name.startswith("nodeheal.") and name not in _ASK_NOBODY:
                for each in vars(module).values():
                    if isinstance(each, _lru_cache_wrapper):
                        each.cache_clear()

    def ask(self, number: int, answer: Any, becomes: bool) -> Any:
        """What the guard says; where it is out, what it is taken to say."""
        if bool(answer) is becomes:
            return answer
        self.mattered.add(number)
        return becomes if number == self._out else answer

    def compare(self, number: int, name: str, left: Any, right: Any) -> Any:
        """What the comparison says; where it is out, the opposite of it for two equal values."""
        answer = _BY_SIZE[name](left, right)
        return self.ask(number, answer, not answer) if left == right else answer

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Read one of the modules with the questions in it."""
        spec = PathFinder.find_spec(name, path) if name in self._codes else None
        if spec is not None and spec.origin is not None:
            spec.loader = _Asking(name, spec.origin, self._codes[name], self)
        return spec

    def _compiled(self, module: str, path: Path) -> CodeType:
        """The module's code, with a question around each guard."""
        tree = ast.parse(path.read_bytes(), str(path))
        questions: dict[int, list[tuple[int, bool]]] = {}
        for site, node in find_sites(module, tree, path):
            questions.setdefault(id(node), []).append((len(self.sites), site.becomes))
            self.sites.append(site)
        bounds: dict[int, int] = {}
        for site, node in find_bounds(module, tree, path) if self._with_bounds else ():
            bounds[id(node)] = len(self.sites)
            self.sites.append(site)
        return compile(ast.fix_missing_locations(_Asks(questions, bounds).visit(tree)), str(path), "exec")


class _Asking(SourceFileLoader):
    def __init__(self, name: str, path: str, code: CodeType, switch: Switch) -> None:
        super().__init__(name, path)
        self._code, self._switch = code, switch

    def get_code(self, fullname: str) -> CodeType:
        return self._code

    def exec_module(self, module: ModuleType) -> None:
        setattr(module, _ASK, self._switch.ask)
        setattr(module, _COMPARE, self._switch.compare)
        super().exec_module(module)


class _Asks(ast.NodeTransformer):
    def __init__(self, questions: dict[int, list[tuple[int, bool]]], bounds: dict[int, int]) -> None:
        self._questions, self._bounds = questions, bounds

    def generic_visit(self, node: ast.AST) -> ast.AST:
        asked = super().generic_visit(node)
        if id(node) in self._bounds:
            assert isinstance(asked, ast.Compare)
            name, parts = type(asked.ops[0]).__name__, [asked.left, *asked.comparators]
            numbered: list[ast.expr] = [ast.Constant(self._bounds[id(node)]), ast.Constant(name), *parts]
            asked = ast.copy_location(ast.Call(ast.Name(_COMPARE, ast.Load()), numbered, []), node)
        for number, becomes in self._questions.get(id(node), ()):
            assert isinstance(asked, ast.expr)
            given: list[ast.expr] = [ast.Constant(number), asked, ast.Constant(becomes)]
            asked = ast.copy_location(ast.Call(ast.Name(_ASK, ast.Load()), given, []), node)
        return asked
