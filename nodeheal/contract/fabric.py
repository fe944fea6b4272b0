"""Defines the test of two nodes, of which one serves and the other connects: the request to each, and its answer.

Each node has its own request id, and answers twice: by a `Diagnostics Finished` event with that id, and in the output
of its command, which is read where the event was lost.
"""

from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from nodeheal.contract.health_event import Frozen, Measured, Word
from nodeheal.contract.vocabulary import FabricRole, Verdict

PORT = 47592  # fi_pingpong's default
SECONDS = 60
PEER_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9.-]{0,254}$"  # fi_pingpong speaks IPv4 only
Address = Annotated[str, Field(pattern=PEER_PATTERN)]
NO_PEER = "none"


class FabricTestRequest(Frozen):
    """The request to one of the two nodes, as the parameters of the SSM document.

    The serving node is asked first; the other retries until it is reachable, or its seconds are over.
    """

    model_config = ConfigDict(extra="ignore")  # items stored before 0.3 have the ids of the command as well

    role: FabricRole
    peer: Address | None = Field(default=None, description="CONNECT: the address of the node that serves")
    port: int = Field(default=PORT, ge=1024, le=65_535)
    seconds: int = Field(
        default=SECONDS, ge=5, le=600, description="how long a node waits for the other, and runs the test"
    )
    min_mb_per_second: int = Field(
        default=0, ge=0, le=1_000_000, description="below this the test fails; 0: any speed passes"
    )
    all_reduce: bool = Field(
        default=False, description="then run an all-reduce over the GPUs of both, on the next port"
    )
    min_all_reduce_mb_per_second: int = Field(
        default=0, ge=0, le=1_000_000, description="bus bandwidth of the all-reduce; below this it fails"
    )

    @model_validator(mode="after")
    def _who_connects_names_a_peer(self) -> Self:
        if (self.role is FabricRole.CONNECT) != (self.peer is not None):
            raise ValueError("the node that connects must name its peer, and the one that serves must not")
        return self

    def parameters(self) -> dict[str, str]:
        """Return the document's parameters."""
        return {
            "Role": self.role.value,
            "Peer": self.peer or NO_PEER,
            "Port": str(self.port),
            "Seconds": str(self.seconds),
            "MinMbPerSecond": str(self.min_mb_per_second),
            "AllReduce": "yes" if self.all_reduce else "no",
            "MinAllReduceMbPerSecond": str(self.min_all_reduce_mb_per_second),
        }


class FabricAnswer(Frozen):
    """The result of one node: the last line of its command's output."""

    request_id: str
    verdict: Verdict
    failed_tests: tuple[str, ...] = ()
    undone_tests: tuple[str, ...] = ()
    reason: str
    measured: dict[Word, Measured] = Field(
        default_factory=dict, description="fabric_mb_per_s, fabric_us, all_reduce_mb_per_s"
    )


class PairVerdict(Frozen):
    """The result of both answers. A failed pair does not show which of its nodes, cables or switches is broken."""

    verdict: Verdict
    reason: str


def judge_pair(serving: FabricAnswer | None, connecting: FabricAnswer | None) -> PairVerdict:
    """Combine the answers: both must be OK. A failure of one is a failure; without one, a missing or UNKNOWN answer is
    UNKNOWN.
    """
    answers = {"the node that serves": serving, "the node that connects": connecting}
    reasons = [f"{who}: {answer.reason if answer else 'no answer'}" for who, answer in answers.items()]
    verdicts = [answer.verdict if answer else Verdict.UNKNOWN for answer in answers.values()]
    if Verdict.FAILED in verdicts:
        verdict = Verdict.FAILED
    else:
        verdict = Verdict.OK if set(verdicts) == {Verdict.OK} else Verdict.UNKNOWN
    return PairVerdict(verdict=verdict, reason="; ".join(reasons))
