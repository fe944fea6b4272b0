"""answer_approval: the page behind the links of an approval email. See nodeheal/services/operators/answer_approval.py.

A GET only shows a page, since mail scanners follow links. What a person sends from that page, a POST, decides.
"""

from datetime import UTC, datetime

from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEventV2

from lambdas.composition import Event, links, logger, ports, records
from nodeheal.domain.errors import NotAccepted, NotFound
from nodeheal.domain.recovery.approval_links import Answer, LinkRefused
from nodeheal.services.operators import approval_page
from nodeheal.services.operators.answer_approval import answer_approval

_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
}


def handler(event: Event, context: object) -> Event:
    """One HTTP request (API Gateway, payload format 2.0)."""
    request = APIGatewayProxyEventV2(event)
    try:
        status, page = _answer(request)
    except (LinkRefused, NotFound) as refused:
        logger().warning("approval link refused", extra={"why": str(refused), "from": _from(request)})
        status, page = 403, approval_page.refusal(str(refused))
    except NotAccepted as busy:
        logger().warning("approval not taken", extra={"why": str(busy)})
        status, page = 503, approval_page.refusal(str(busy), "Nothing was answered")
    except approval_page.FormRefused as odd:
        logger().warning("approval form refused", extra={"why": str(odd), "from": _from(request)})
        status, page = 400, approval_page.refusal(str(odd), "Nothing was sent")
    return {"statusCode": status, "headers": _HEADERS, "body": page}


def _answer(request: APIGatewayProxyEventV2) -> tuple[int, str]:
    records().must_be_whole(ports())
    query = dict(request.query_string_parameters or {})
    question, answer = links().read(query, ports().clock())
    if request.http_method != "POST":
        history = ports().incidents.history(question.incident_id)
        until = datetime.fromtimestamp(int(query["expires"]), UTC)
        in_order = sorted(Answer, key=lambda each: each is not answer)
        both = {each: f"?{links().query(question, each, until)}" for each in in_order}
        return 200, approval_page.question(history, question.turn, both, ports())
    kind = request.headers.get("content-type", "")
    who, why = approval_page.read_form(kind, request.body or "", is_base64=bool(request.is_base64_encoded))
    by = f"{who} (link, from {_from(request)})"
    answered = answer_approval(question, answer, by, why, ports())
    logger().info("approval answered", extra={"incident": question.incident_id, "taken": answered.is_taken, "by": by})
    incident = ports().incidents.incident(question.incident_id)
    return (200 if answered.is_taken else 409), approval_page.outcome(answered, answer, incident, ports())


def _from(request: APIGatewayProxyEventV2) -> str:
    return str(request.request_context.http.source_ip)
