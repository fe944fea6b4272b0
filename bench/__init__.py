"""Measures speed and memory. Nothing here is a test: these numbers depend on the machine."""
