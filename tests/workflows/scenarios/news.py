"""What heartbeats, silence, other services and hangs tell of a node, and what of it is news.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from typing import Any

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import INSTANCE_GONE, TRAINING_HANG
from nodeheal.contract.vocabulary import Family
from nodeheal.domain.fleet.liveness import TERMINATED
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports.signals import Draft
from nodeheal.services.intake.take_signal import take_draft
from nodeheal.services.operators.operator_guardrails import pause_pool
from tests.support.builders import NOW, xid
from tests.support.fake_cluster import BROKEN
from tests.workflows.breaking_world import ACTS
from tests.workflows.scenarios.races import Moment
from tests.workflows.scenarios.setup import world

# What others say


def draft_of(**said: Any) -> Draft:
    """What somebody says of a node."""
    known = {"source": "aws.ec2", "family": Family.host, "code": "said", "key": str(said), "observed_at": NOW}
    return Draft(**{"instance_id": BROKEN, **known, **said})


def _said(it: Moment, **said: Any) -> Any:
    return it.does(lambda: take_draft(draft_of(**said), it.ports, ACTS))


GONE: dict[str, Any] = {"code": INSTANCE_GONE, "subcode": TERMINATED, "takes_node_away": True}


# Hangs


def _hangs(run: int, name: str = BROKEN) -> HealthEvent:
    said = {"family": Family.host, "code": TRAINING_HANG, "component": f"llama/{run}", "event_id": f"hang-{name}"}
    return xid(0, **said, node_id=name, instance_id=name)


# What is said again


def it_repeats_while_it_is_opted_out() -> list[str]:
    return _repeats(ACTS.model_copy(update={"opted_out": {BROKEN: "ours"}}))


def _repeats(policy: RecoveryPolicy, seconds: int = 0) -> list[str]:
    """The fault was seen and nothing done, and nothing would be done now."""
    it = world(policy)
    if seconds:
        pause_pool("demo", seconds, "hands off", it.plain)
    it.reports(xid(79))
    assert it.ends == ("Observed only",)
    it._ingest(xid(79, event_id="again"))
    it.walk_what_was_started()
    return [] if len(it.ends) == 1 else ["people are told of one fault again and again"]
