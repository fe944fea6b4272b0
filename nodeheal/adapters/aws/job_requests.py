"""Calls the function request_job, in the name of the person who asks."""

import json
from typing import TYPE_CHECKING

from nodeheal.contract import names
from nodeheal.contract.job_acts import JOB_ANSWER, JobAct, JobAnswer

if TYPE_CHECKING:
    from types_boto3_lambda import LambdaClient


def ask_request_job(functions: "LambdaClient", act: JobAct) -> JobAnswer:
    """Return the function's answer. Raises ValueError where it broke: then it may have done a part of the act.

    The client must send the call once: an act that is repeated meets what the first call has recorded.
    """
    answer = functions.invoke(FunctionName=names.JOB_FUNCTION, Payload=act.model_dump_json().encode())
    body = answer["Payload"].read()
    if "FunctionError" in answer:
        why = json.loads(body).get("errorMessage", answer["FunctionError"])
        raise ValueError(f"{names.JOB_FUNCTION} broke, and its log says where: {why}; look, and try again")
    return JOB_ANSWER.validate_json(body)
