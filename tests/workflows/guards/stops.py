"""The guards of tests/workflows/scenarios/stops.py: where each stands, and what goes wrong without it."""

_MAY_STOP = "'' if wait.command_id else why_not_stop(machine)"
_IS_TO_STOP = "wait.command_id == STOPPING and machine.state in ('pending', 'running')"

GUARDS = ()
