"""The guards of tests/workflows/scenarios/deadlines.py: where each stands, and what goes wrong without it."""

_BY_EC2 = "is_sent_to_machine(wait)"

GUARDS = (
    # Of a reboot
    # Of a diagnosis, and of evidence
    # Of an answer
)
