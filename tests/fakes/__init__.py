"""Fakes that tests run real code against."""
