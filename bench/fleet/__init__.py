"""Compares a fleet's training under nodeheal with that of two other keepers of the same fleet."""
