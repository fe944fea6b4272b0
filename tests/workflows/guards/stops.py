"""The guards of tests/workflows/scenarios/stops.py: where each stands, and what goes wrong without it."""

GUARDS = ()
