"""sweep: once a minute, by the clock. See nodeheal/services/sweep.py."""

from dataclasses import asdict

from lambdas.composition import Event, logger, policy, ports
from nodeheal.services.sweep import sweep


def handler(event: Event, context: object) -> None:
    """One run over what there is to look over."""
    logger().info("swept", extra={"swept": asdict(sweep(ports(), policy()))})
