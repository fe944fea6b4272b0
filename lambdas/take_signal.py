"""take_signal: what AWS says about nodes, from the default bus. See nodeheal/services/intake/take_signal.py."""

from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from lambdas.composition import emit_fault, explain, logger, policy, ports, quarantine, queued
from nodeheal.adapters.aws.translate.auto_scaling import AutoScalingTerminateEvent, from_auto_scaling
from nodeheal.adapters.aws.translate.aws_health import AwsHealthEvent, from_aws_health
from nodeheal.adapters.aws.translate.cloudwatch_alarm import AlarmEvent, from_cloudwatch_alarm
from nodeheal.adapters.aws.translate.ec2_state import Ec2StateEvent, from_ec2_state
from nodeheal.adapters.aws.translate.ec2_warning import Ec2WarningEvent, from_ec2_warning
from nodeheal.adapters.aws.translate.foreign import ForeignEvent
from nodeheal.adapters.scheduler_signals import SIGNALS
from nodeheal.contract import names
from nodeheal.contract.json_text import read_json
from nodeheal.contract.vocabulary import Verdict
from nodeheal.ports.signals import Draft
from nodeheal.services.intake.take_signal import take_signal

# What reads which event: of the cloud, and of the schedulers.
TRANSLATORS: dict[str, tuple[type[ForeignEvent], Callable[[Any], list[Draft]]]] = {
    names.ALARM_STATE_CHANGE: (AlarmEvent, from_cloudwatch_alarm),
    names.AUTO_SCALING_TERMINATE: (AutoScalingTerminateEvent, from_auto_scaling),
    names.AWS_HEALTH: (AwsHealthEvent, from_aws_health),
    names.EC2_REBALANCE: (Ec2WarningEvent, from_ec2_warning),
    names.EC2_RESERVATION_WARNING: (Ec2WarningEvent, from_ec2_warning),
    names.EC2_SPOT_WARNING: (Ec2WarningEvent, from_ec2_warning),
    names.EC2_STATE_CHANGE: (Ec2StateEvent, from_ec2_state),
    **SIGNALS,
}


def _take(body: str) -> None:
    """Take one EventBridge event. One that cannot be read, or that nobody reads, goes to quarantine with its reason."""
    event = read_json(body)
    kind = str(event.get("detail-type"))
    if kind not in TRANSLATORS:
        return quarantine("take_signal", body, f"nobody reads events of the kind {kind!r}")
    parse, translate = TRANSLATORS[kind]
    try:
        drafts = translate(parse.model_validate(event))
    except ValidationError as error:
        return quarantine("take_signal", body, f"{kind}: {explain(error)}")
    for taken in take_signal(drafts, ports(), policy()) if drafts else ():
        told = {"became": taken.became or "no node of ours", "node": taken.draft.instance_id, "kind": kind}
        if taken.became is not None:
            draft = taken.draft
            emit_fault(draft.instance_id, draft.family, draft.code, draft.verdict or Verdict.UNKNOWN)
        logger().info("signal taken", extra={**told, "event_id": event.get("id"), "code": taken.draft.code})


handler = queued("take_signal", _take)
