"""News in every order, late and twice: six of them, in every way that can be, and it always ends the same, or for a
reason that has a name. 1,389 orders, each told in two ways.

Late news come after the deadline of whoever waits for them; `eager` news come before the workflow has gone on.
"""

import pytest

from nodeheal.contract.vocabulary import Verdict
from tests.workflows.ordered_stories import AT_ONCE, NAMED, STORIES, told
from tests.workflows.orders import (
    BOOT,
    FAULT,
    PROOF,
    STOP,
    orders_of,
)

MANY = dict(zip(STORIES, (1_155, 72, 72, 90), strict=True))


@pytest.mark.parametrize("is_eager", [False, True], ids=["as they are waited for", "eager"])
@pytest.mark.parametrize("story", STORIES)
def test_in_whatever_order_its_news_come_it_ends_the_same(story: str, is_eager: bool) -> None:
    code, verdict, names = STORIES[story]
    orders = list(orders_of(names, AT_ONCE))
    _, usual = told((FAULT,), code, verdict, is_eager=False)

    for order in orders:
        it, outcome = told(order, code, verdict, is_eager=is_eager)

        assert it.wrong == [], order
        assert outcome == usual or NAMED.get(outcome.why) in it.timed_out, (order, outcome)
    assert len(orders) == MANY[story]


def test_news_that_come_late_are_waited_for_in_vain() -> None:
    """Else the orders would say nothing: what is told after a proof has not been there before it."""
    it, _ = told((FAULT, BOOT, PROOF, STOP), 79, Verdict.OK, is_eager=False)

    assert "isolate_node" in it.timed_out
