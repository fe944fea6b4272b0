"""Composes and sends emails to operators and to owners of jobs."""
