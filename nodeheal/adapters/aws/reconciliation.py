"""Calls the function reconcile_records, in the name of the person who asks."""

import json
from typing import TYPE_CHECKING

from nodeheal.contract import names
from nodeheal.contract.reconcile import ReconcileAnswer, ReconcileRequest

if TYPE_CHECKING:
    from types_boto3_lambda import LambdaClient


def ask_reconcile_records(functions: "LambdaClient", request: ReconcileRequest) -> ReconcileAnswer:
    """Return the function's answer. Raises ValueError where it broke: each correction may be repeated."""
    answer = functions.invoke(FunctionName=names.RECONCILE_FUNCTION, Payload=request.model_dump_json().encode())
    body = answer["Payload"].read()
    if "FunctionError" in answer:
        why = json.loads(body).get("errorMessage", answer["FunctionError"])
        raise ValueError(f"{names.RECONCILE_FUNCTION} broke, and its log says where: {why}; run the command again")
    return ReconcileAnswer.model_validate_json(body)
