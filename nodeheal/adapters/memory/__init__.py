"""Implements every AWS adapter in memory: for tests, simulation and dry runs. The same specification and tests
apply.
"""
