"""Which tests are asked about a guard before others."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Json = dict[str, Any]


def spread(tests: Sequence[str]) -> list[str]:
    """In this order, but one of each test function, of each story and of each scenario, before the second of any."""
    of_function: dict[str, list[str]] = {}
    for test in tests:
        of_function.setdefault(_function_of(test), []).append(test)
    ranked = [(rank, test) for some in of_function.values() for rank, test in enumerate(some)]
    return [test for _, test in sorted(ranked, key=lambda one: one[0])]


def _function_of(test: str) -> str:
    if "::test_nothing_goes_wrong[" in test:
        return test
    return test.partition("-")[0] if "battery" in test else test.partition("[")[0]


def nearest(module: str, tests: Iterable[str], recorded: Mapping[str, Json]) -> list[str]:
    """Those of files that are named after the module first; then, the fewer guards matter to a test, the more it is
    about one of them."""
    name = module.rpartition(".")[2]
    by_guards = sorted(tests, key=lambda test: (len(recorded[test]["mattered"]), test))
    return sorted(spread(by_guards), key=lambda test: name not in test.partition("::")[0])
