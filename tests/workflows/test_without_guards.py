"""Without any single guard something goes wrong, and is noticed: by an invariant, or by how the story ends."""

import pytest

from nodeheal.agent.node_command import why_refuse
from tests.without import without
from tests.workflows.guards import GUARDS
from tests.workflows.guards.guard import Guard


@pytest.mark.parametrize("scenario", dict.fromkeys(guard.scenario for guard in GUARDS), ids=lambda s: s.__name__)
def test_with_every_guard_nothing_goes_wrong(scenario: object) -> None:
    assert callable(scenario)
    assert scenario() == []


@pytest.mark.parametrize("guard", GUARDS, ids=str)
def test_without_the_guard_it_is_noticed(guard: Guard) -> None:
    with without(guard.where, guard.guard, guard.becomes, guard.nth):
        wrong = guard.scenario()

    assert wrong != [], f"{guard.scenario.__name__} goes as well without {guard.name}"


def test_a_guard_that_says_something_else_now_is_not_taken_for_removed() -> None:
    with (
        pytest.raises(AssertionError, match="stands there 0 times; say what it is now"),
        without(why_refuse, "boot_id is not meant_for"),
    ):
        pass


def _pair(given: str) -> tuple[str, str]:
    kept = given
    return kept, kept


def test_of_two_that_read_the_same_one_is_taken_out_where_it_is_read() -> None:
    with without(_pair, "kept", "''", nth=2):
        assert _pair("a") == ("a", "")

    with pytest.raises(AssertionError, match="stands there 2 times"), without(_pair, "kept"):
        pass
    with pytest.raises(AssertionError, match="stands there 2 times"), without(_pair, "kept", nth=3):
        pass
