"""A deterministic simulation: the real services and state machines, on one seeded clock, over a fleet with failures.

The same seed gives the same run, bit for bit. `nodeheal simulate` runs it; tests/simulation checks the invariants.
"""
