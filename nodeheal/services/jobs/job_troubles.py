"""Says what a person must do about a job that was handed over, and who."""

from typing import assert_never

from nodeheal.contract.vocabulary import Escalation, Trouble

# What an operator must see to at once: the owner corrects the others, and they wait until the morning.
OF_THE_CLUSTER = frozenset(
    {Trouble.NODES_FAIL, Trouble.RANKS_LEFT, Trouble.RANK_LATE, Trouble.NOT_LAUNCHED, Trouble.RECOVERY_ENDED}
)
# How an incident ends whose question got no yes.
NOT_APPROVED = frozenset({Escalation.APPROVAL_REFUSED, Escalation.APPROVAL_IGNORED})
# Only a subscribed owner gets emails, and who writes to the operators may not know: `jobs show` does.
TELL_OWNER = "Tell its owner, unless this says that the owner gets emails:"
_OPERATORS = "The operators have been told, see to the nodes, and start it again with:"
_NOT_APPROVED = "The operators refused its restart, or did not answer in time."


def needed(trouble: Trouble | None) -> tuple[str, bool]:
    """(what the owner is to do, whether the same submission may then be restarted as it was)."""
    match trouble:
        case Trouble.POOL_TOO_SMALL:
            return "ask for fewer nodes or accelerators, or name another pool, and submit it under another name.", False
        case Trouble.DIRECTORY_TAKEN:
            return "give it another checkpoints.directory and another name; or wait until that job is over, then:", True
        case Trouble.DIRECTORY_NOT_SHARED:
            return (
                "name a directory that all nodes share, and submit it under another name; or have one mounted there on "
                "every node of the pool, then:",
                True,
            )
        case Trouble.CANNOT_START:
            return "look at its image, command and mounts, correct them, and submit it under another name.", False
        case Trouble.ONLY_OBSERVED:
            return (
                "nodeheal only observes there, so it is yours to bring back. When you have looked at why it failed:",
                True,
            )
        case Trouble.PROGRAM_FAILS:
            return (
                "look for the cause in your program and its logs. Where the job's file has to change, submit it under "
                "another name. Where something else was at fault, start it again as it was:",
                True,
            )
        case Trouble.NOT_APPROVED:
            return (
                f"look at why your program failed. {_NOT_APPROVED} If it may run again as it was, start it, or ask "
                "them to:",
                True,
            )
        case Trouble.RANK_LATE:
            return (
                "see whether its image is very large, or cannot be pulled there; the operators know as well. Then:",
                True,
            )
        case Trouble.RANKS_LEFT:
            return f"please do not start it yourself: two copies would write the same checkpoints. {_OPERATORS}", True
        case Trouble.NODES_FAIL | Trouble.NOT_LAUNCHED | Trouble.RECOVERY_ENDED | None:
            return f"nothing. {_OPERATORS}", True
    assert_never(trouble)


def needed_of_operators(trouble: Trouble | None, *, has_owner: bool) -> tuple[str, bool]:
    """(what the operators are to do, whether it is they who restart it). It agrees with what the owner is told."""
    match trouble:
        case Trouble.RANK_LATE if has_owner:
            return (
                f"look at the nodes first; then its owner looks at its image, and starts it again. {TELL_OWNER}",
                False,
            )
        case Trouble.RANK_LATE:
            return "look at the nodes and at its image first; then:", True
        case Trouble.NOT_APPROVED:
            return f"{_NOT_APPROVED} If it may run again as it was:", True
        case Trouble.RANKS_LEFT:
            return "see that no rank of it runs any more: two copies would write the same checkpoints. Then:", True
        case Trouble.NODES_FAIL | Trouble.NOT_LAUNCHED | Trouble.RECOVERY_ENDED | None:
            return "look at the nodes first. When the pool has enough healthy ones:", True
        case _ if has_owner:
            return f"its owner has to change the job, and starts it again. {TELL_OWNER}", False
        case _:
            return "find its owner: it is the job that has to change. To see it:", False
