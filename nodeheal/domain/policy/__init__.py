"""The policy document: its parts, its rules, and what is probably not meant."""
