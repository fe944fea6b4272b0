"""Stories whose news comes in another order."""

from collections.abc import Sequence

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


def told(order: Sequence[str], code: int, verdict: Verdict, *, is_eager: bool) -> tuple[OrderedWorld, Outcome]:
    """The story with its news in this order, and how it ended."""
    it = OrderedWorld(order, code, is_eager=is_eager)
    it.diagnoses[BROKEN] = verdict
    return it, it.play()
