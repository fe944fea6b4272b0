"""Defines what crosses a process boundary: events, steps, notifications, names. It imports no other package of
nodeheal.
"""
