"""What may come together by bad luck or ill will, and is to harm nobody: each scenario says what is wrong after it.

Those are here by which the sweep of tests/mutants holds guards that no other test holds.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator

import pytest

from tests.workflows import scenarios

Scenario = Callable[[], list[str]]


def all_scenarios() -> Iterator[Scenario]:
    """Every public function of the package that needs nothing and answers with a list of what is wrong."""
    for found in pkgutil.iter_modules(scenarios.__path__, f"{scenarios.__name__}."):
        module = importlib.import_module(found.name)
        for name, one in vars(module).items():
            is_own = inspect.isfunction(one) and one.__module__ == module.__name__ and not name.startswith("_")
            if is_own and one.__annotations__.get("return") == list[str] and not inspect.signature(one).parameters:
                yield one


@pytest.mark.parametrize("scenario", list(all_scenarios()), ids=lambda one: one.__name__)
def test_nothing_goes_wrong(scenario: Scenario) -> None:
    assert scenario() == []


def test_the_scenarios_are_found() -> None:
    assert len({one.__name__ for one in all_scenarios()}) > 100
