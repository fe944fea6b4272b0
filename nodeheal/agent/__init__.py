"""Runs on nodes and reports facts. Imports the standard library and contract only: no pydantic, no boto3."""
