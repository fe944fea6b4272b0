"""reconcile_records: sets restored records right, for a person. See nodeheal/services/operators/reconcile_records.py.

A person calls it directly. The request is hostile until it is parsed.
"""

from lambdas.composition import Event, is_ping, logger, policy, ports
from nodeheal.contract.reconcile import ReconcileRequest
from nodeheal.services.operators.reconcile_records import reconcile_records


def handler(event: Event, context: object) -> Event | None:
    """Answer with what was set right, or would be. Raises ValidationError for anything else."""
    if is_ping(event):
        return None
    request = ReconcileRequest.model_validate(event, strict=True)
    answer = reconcile_records(request, ports(), policy()).model_dump(mode="json")
    logger().info("records reconciled", extra={"request": request.model_dump(mode="json"), "answer": answer})
    return answer
