"""The operator's command, `nodeheal`.

A module imports at its top what the signatures of its commands need. A command imports its work when it runs.
"""
