"""request_job without Lambda: a request goes through JSON both ways, as between the command and the function."""

import json
from collections.abc import Callable
from typing import Any

from nodeheal.contract.job_acts import JOB_ANSWER, JobAct, JobAnswer, parse_job_act
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.ports.scheduler import TaskDefinitions
from nodeheal.services.jobs.request_job import request_job


def answers(
    ports: Ports, policy: RecoveryPolicy, definitions: TaskDefinitions | None = None
) -> Callable[[Any, JobAct], JobAnswer]:
    """What stands in for `ask_request_job`: the service over these ports."""

    def answer(_: Any, act: JobAct) -> JobAnswer:
        asked = parse_job_act(json.loads(act.model_dump_json()))
        given = request_job(asked, ports, policy, lambda kind: definitions)  # type: ignore[arg-type,return-value]
        return JOB_ANSWER.validate_json(given.model_dump_json())

    return answer
