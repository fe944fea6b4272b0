"""Whose reason it is that a node of Slurm is out of service."""

import pytest

from nodeheal.parsers.slurm import parse_nodes

BY_SLURM = [
    "Not responding",
    "Prolog error",
    "batch job complete failure",
    "Kill task failed",
    "Kill task failed (JobId=12 StepId=0)",
    "reboot requested : reboot issued : reboot timed out",
    "Reboot ASAP : reboot issued : reboot timed out",
    "Not responding : Node unexpectedly rebooted",
    "Low RealMemory (reported:1 < 100.00% of configured:2), gres/gpu count reported lower than configured (7 < 8)",
]
BY_A_PERSON = [
    "Action:Replace",
    "Action:Replace : Not responding",
    "new driver, ada : reboot issued : reboot timed out",
    "Not responding to ssh, ada",
    "Prolog error? ada looks",
    "Low voltage, ada",
    "reboot issued by ada",
]


@pytest.mark.parametrize("reason", [*BY_SLURM, *BY_A_PERSON, "nodeheal:inc-1 : Not responding"])
def test_a_reason_is_slurms_own_only_if_all_of_it_is(reason: str) -> None:
    [node] = parse_nodes(f"node1|10.0.0.1|down*|root|{reason}\n")

    assert node.is_by_person is (reason in BY_A_PERSON)
    assert node.is_ours is reason.startswith("nodeheal:")


def test_a_node_that_the_controller_has_not_heard_yet_is_nobodys() -> None:
    [node] = parse_nodes("node1|10.0.0.1|unknown*|Unknown|none\n")

    assert (node.is_by_person, node.is_in_service) == (False, True)
