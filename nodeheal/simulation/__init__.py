"""A deterministic simulation: the real services and state machines, on one seeded clock, over a fleet that fails.

The same seed is the same run, bit for bit. `nodeheal simulate` runs it; tests/simulation holds it to the invariants.
"""
