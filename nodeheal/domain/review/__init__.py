"""Incidents read back: reviews, statistics, measures, and where people read more."""
