"""Adds to MiniStack's EventBridge the time that an event takes."""

import contextvars
import json
import threading
from typing import Any

from ministack.services import eventbridge

from sandbox.aws_json import Json
from sandbox.behaviour import Behaviour
from sandbox.ministack_adapter.private_names import attribute


def delay_events(behaviour: Behaviour) -> None:
    """Delay an event between the bus and a target; the emulator delivers it within the call that puts it."""
    invoke = attribute(eventbridge, "_invoke_target")

    def invoke_later(*asked: Any, **more: Any) -> None:
        if not behaviour.event_seconds:
            invoke(*asked, **more)
            return
        context = contextvars.copy_context()
        later = threading.Timer(behaviour.event_seconds, lambda: context.run(invoke, *asked, **more))
        later.daemon = True
        later.start()

    eventbridge._invoke_target = invoke_later


def matches(pattern: Json, event: Json) -> bool:
    """Whether a rule of this pattern takes the entry of PutEvents."""
    return bool(attribute(eventbridge, "_matches_pattern")(json.dumps(pattern), event))
