"""News in every order, late and twice: six of them, in every way that can be, and it always ends the same, or for a
reason that has a name. 1,389 orders, each told in two ways.

Late news come after the deadline of whoever waits for them; `eager` news come before the workflow has gone on.
"""

from collections.abc import Sequence

import pytest

from nodeheal.contract.vocabulary import Verdict
from tests.support.fake_cluster import BROKEN
from tests.workflows.orders import (
    AGAIN,
    BOOT,
    FAULT,
    PEERS_STOP,
    PROOF,
    STALE,
    STOP,
    THE_END,
    OrderedWorld,
    Outcome,
    orders_of,
)

ALL = (FAULT, FAULT + AGAIN, STALE, STOP, PEERS_STOP, BOOT, BOOT + AGAIN, PROOF, PROOF + AGAIN)
OF_THE_JOB = (FAULT, FAULT + AGAIN, STALE, STOP, PEERS_STOP, STOP + AGAIN)
AT_ITS_END = (FAULT, FAULT + AGAIN, STALE, THE_END, BOOT, PROOF)
AT_ONCE = 6  # of its news in one order; of fewer, the others come as soon as they are there
# Why it may end otherwise, and who has waited for late news in vain then.
NAMED = {"JOB_END_TIMEOUT": "wait_for_news"}
STORIES = {
    "fixed by a reboot": (79, Verdict.OK, ALL),
    "a spare, since it did not help": (
        79,
        Verdict.FAILED,
        (FAULT, FAULT + AGAIN, STALE, PEERS_STOP, BOOT, PROOF),
    ),
    "only the job restarts": (31, Verdict.OK, OF_THE_JOB),
    "it waits for the job's end": (63, Verdict.OK, AT_ITS_END),
}
MANY = dict(zip(STORIES, (1_155, 72, 72, 90), strict=True))


def told(order: Sequence[str], code: int, verdict: Verdict, *, is_eager: bool) -> tuple[OrderedWorld, Outcome]:
    """The story with its news in this order, and how it ended."""
    it = OrderedWorld(order, code, is_eager=is_eager)
    it.diagnoses[BROKEN] = verdict
    return it, it.play()


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
