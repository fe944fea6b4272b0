"""ECS Container Instance Health Change: the results of ECS's own checks on a node.

CONTAINER_RUNTIME comes on EC2, ACCELERATED_COMPUTE and DAEMON on managed instances only, AGENT_CONNECTIVITY on both:
the ECS agent has been disconnected for longer than a threshold. The event has no version; each check has the time of
its change.
"""

import re

from pydantic import AwareDatetime, Field

from nodeheal.adapters.aws.translate.foreign import Foreign, ForeignEvent, dated, milliseconds
from nodeheal.contract import names
from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.ports.signals import Draft

_XID = re.compile(r"XID[_ ]?(\d{1,4})$")
_CHECKS = {
    "CONTAINER_RUNTIME": (Family.host, "container_runtime"),
    "ACCELERATED_COMPUTE": (Family.host, "accelerated_compute"),
    "DAEMON": (Family.host, "ecs_daemon"),
    "AGENT_CONNECTIVITY": (Family.heartbeat, names.AGENT_DISCONNECTED),
}
_ADVISORY = {"AGENT_CONNECTIVITY", "DAEMON"}
_IMPAIRED, _OK = "IMPAIRED", "OK"


class _Check(Foreign):
    type: str
    status: str
    reason: str | None = Field(default=None, alias="statusReason")
    changed_at: AwareDatetime = Field(alias="lastStatusChange")


class _Detail(Foreign):
    instance_id: str | None = Field(default=None, alias="ec2InstanceId")
    checks: tuple[_Check, ...] = Field(alias="healthChecks")


class EcsHealthEvent(ForeignEvent):
    """The event."""

    detail: _Detail


def from_ecs_health(event: EcsHealthEvent) -> list[Draft]:
    """Return one draft for each check that failed or passes again; none where ECS reports no result."""
    machine = event.detail.instance_id
    if machine is None:
        return []
    known = [check for check in event.detail.checks if check.type in _CHECKS and check.status in (_IMPAIRED, _OK)]
    return [_draft(event, machine, check) for check in known]


def _draft(event: EcsHealthEvent, machine: str, check: _Check) -> Draft:
    family, code = _code_of(check)
    at, skew = dated(event, check.changed_at)
    version = milliseconds(at)
    is_disconnected = check.type == "AGENT_CONNECTIVITY"
    return Draft(
        instance_id=machine,
        source="aws.ecs",
        family=family,
        code=code,
        subcode="impaired" if is_disconnected else None,
        verdict=Verdict.OK if check.status == _OK else None,
        key=f"{machine}|{check.type}|{check.status}|{version}",
        observed_at=at,
        evidence=f"{check.type} {check.status}: {check.reason or 'no reason given'}.{skew}",
        is_advisory=check.type in _ADVISORY,
        topic=f"ecs/{check.type}",
        version=version,
    )


def _code_of(check: _Check) -> tuple[Family, str]:
    """Return the code. An accelerator that an XID impaired has that XID's code, which the catalog knows."""
    xid = _XID.search(check.reason or "") if check.type == "ACCELERATED_COMPUTE" else None
    return (Family.xid, str(int(xid[1]))) if xid else _CHECKS[check.type]
