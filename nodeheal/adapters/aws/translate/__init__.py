"""Translates AWS's events about machines, one file for each source. Event shapes are used in this folder only."""
