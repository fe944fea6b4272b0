"""Defines one route of an event to a function."""

from dataclasses import dataclass

from aws_cdk import aws_events as events


@dataclass(frozen=True)
class Route:
    """One event pattern and the function that it invokes."""

    construct_id: str
    description: str
    function: str
    on_our_bus: bool
    pattern: events.EventPattern
