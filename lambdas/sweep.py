"""sweep: once a minute, by the clock. See nodeheal/services/sweep.py."""

from dataclasses import asdict

from lambdas.composition import Event, emit, logger, policy, ports
from nodeheal.services.measure_pools import measure_pools
from nodeheal.services.sweep import sweep


def handler(event: Event, context: object) -> None:
    """One run over what there is to look over."""
    done = sweep(ports(), policy())
    logger().info("swept", extra={"swept": asdict(done)})
    emit(lambda: measure_pools(done, ports(), policy()))
