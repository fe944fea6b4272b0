"""validate_policy: called by AppConfig before a deployment. See nodeheal/services/operators/validate_policy.py."""

import base64

from lambdas.composition import Event, channels, logger
from nodeheal.services.operators.validate_policy import validate_policy


def handler(event: Event, context: object) -> None:
    """Raising refuses the document: AppConfig shows the message, and the alarm on this function's errors rings."""
    policy = validate_policy(base64.b64decode(event["content"]).decode("utf-8"), channels())
    logger().info("policy document accepted", extra={"policy_version": policy.version})
