"""Where services meet adapters. Nothing here happens at import: everything is made at first use, once a process."""

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from time import monotonic
from typing import Any, TypeVar

from aws_lambda_powertools import Logger, single_metric
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.parameters import AppConfigProvider, get_secret
from pydantic import BaseModel, ValidationError

from nodeheal.adapters.aws.calls import client, client_once_as, is_temporary
from nodeheal.adapters.aws.items import Table
from nodeheal.adapters.aws.notifier import Destinations
from nodeheal.adapters.aws.policy_reader import PolicyReader, last_good
from nodeheal.adapters.aws.ports import aws_ports
from nodeheal.contract import metrics, names
from nodeheal.contract.steps import AttemptLimit
from nodeheal.contract.vocabulary import ChannelKind, Family, Verdict
from nodeheal.domain.complaints import complaints_of
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.approval_links import Links
from nodeheal.domain.review.measures import Measure, of_attempt, of_fault
from nodeheal.ports import Ports
from nodeheal.ports.storage import AttemptLedger
from nodeheal.services.notify.channel_kinds import read_channels
from nodeheal.services.records_epoch import refuse_if_gone_back

Event = dict[str, Any]
Request = TypeVar("Request", bound=BaseModel)
Answer = TypeVar("Answer", bound=BaseModel | None)
_SECRET_SECONDS = 60
# A message on which our own code raises is kept for a person after this many deliveries. A service that is not there is
# no reason: then the message comes again until the queue ends it (stacks/state.py, DELIVERIES).
_CRASHES = 3
_RECORDS_SECONDS = 1.0


@cache
def logger() -> Logger:
    """Structured logs; each handler adds what it is about."""
    return Logger(service="nodeheal")


def policy() -> RecoveryPolicy:
    """The policy document that is in force now."""
    return policy_reader().read()


def policy_of_others() -> RecoveryPolicy:
    """The copy of the policy in the table, which the sweep renews once a minute; the default where there is no copy.

    For a function that must notify people even while AppConfig cannot be read.
    """
    return last_good(Table(client("dynamodb"), os.environ[names.ENV_TABLE])) or RecoveryPolicy()


def reads_policy() -> bool:
    """Whether this function may read the policy."""
    return names.ENV_POLICY in os.environ


@cache
def policy_reader() -> PolicyReader:
    """Reads AppConfig; asked at most once a minute."""
    application, environment, profile = os.environ[names.ENV_POLICY].split("/")
    return PolicyReader(
        connect=lambda: AppConfigProvider(environment, application, boto3_client=client("appconfigdata")),
        profile=profile,
        table=Table(client("dynamodb"), os.environ[names.ENV_TABLE]),
        alarm=_policy_refused,
    )


def _policy_refused(why: str) -> None:
    logger().error("the deployed policy is not the one in force", extra={"why": why})
    emit(lambda: [Measure(metrics.POLICY_REFUSED)])


def emit(measured: Callable[[], Iterable[Measure]]) -> None:
    """Write measures to the log, where CloudWatch finds them. Whatever goes wrong with them harms nothing else."""
    try:
        for measure in measured():
            metric, unit = measure.metric, MetricUnit[measure.metric.unit]
            with single_metric(metric.name, unit, measure.value, namespace=metric.namespace) as written:
                written.service = ""  # no dimension of Powertools' own: an alarm must name every dimension there is
                for name, value in measure.dimensions.items():
                    written.add_dimension(name, value)
    except Exception:
        logger().exception("a metric was lost")


def emit_fault(node_id: str, family: Family, code: str, verdict: Verdict) -> None:
    """Count a fault in the pool that its node has on record: a node may claim any pool, and each one costs money."""

    def measured() -> list[Measure]:
        node = ports().nodes.get(node_id)
        return of_fault(family, code, verdict, node.pool) if node is not None else []

    if verdict is not Verdict.OK:
        emit(measured)


def quarantine(function: str, body: str, why: str) -> None:
    """Keep a message that cannot be read, say so in the log, and count it."""
    ports().notifier.quarantine(body, why)
    logger().warning("event quarantined", extra={"why": why})
    emit(lambda: [Measure(metrics.MESSAGES_QUARANTINED, at=(function,))])


def links() -> Links:
    """Makes and reads approval links. A new key voids every link of the old one within `_SECRET_SECONDS`."""
    key = get_secret(os.environ[names.ENV_APPROVAL_KEY_ARN], max_age=_SECRET_SECONDS)  # Powertools caches it so long
    of_console = os.environ.get(names.CONSOLE_URL_VARIABLE, "")
    return Links(os.environ.get(names.ENV_APPROVAL_URL, ""), str(key).encode(), of_console)


@cache
def ports() -> Ports:
    """Every port, on AWS. Clients are made when a port is first used."""
    made = aws_ports(
        table=os.environ[names.ENV_TABLE],
        recover_node_arn=os.environ.get(names.ENV_RECOVER_NODE_ARN, ""),
        to=Destinations(
            bus=os.environ.get(names.ENV_BUS, names.BUS),
            topic_arn=os.environ.get(names.ENV_TOPIC_ARN, ""),
            quarantine_url=os.environ.get(names.ENV_QUARANTINE_URL, ""),
            owners_topic_arn=os.environ.get(names.ENV_OWNERS_TOPIC_ARN, ""),
        ),
        evidence_bucket=os.environ.get(names.ENV_EVIDENCE_BUCKET, ""),
        runbooks=os.environ.get(names.ENV_RUNBOOKS, ""),
        run_job_arn=os.environ.get(names.ENV_RUN_JOB_ARN, ""),
        node_role_ids=node_role_ids(),
        hyperpod_clusters=listed(names.ENV_HYPERPOD_CLUSTERS),
        task_roles=listed(names.ENV_TASK_ROLES),
        controllers_once=lambda service: client_once_as(os.environ[names.ENV_CONTROLLER_ROLE_ARN], service),
    )
    console_links = replace(made.console_links, console_url=os.environ.get(names.CONSOLE_URL_VARIABLE, ""))
    return replace(made, attempts=MeasuredAttempts(made.attempts), channels=channels(), console_links=console_links)


class Records:
    """Whether a function may act by the records. Asked at most once in `_RECORDS_SECONDS`, while the answer is yes."""

    def __init__(self) -> None:
        self._whole_at = float("-inf")

    def must_be_whole(self, ports: Ports) -> None:
        """Raises NotAccepted where the table was restored, and nobody has set the records right."""
        if monotonic() - self._whole_at >= _RECORDS_SECONDS:
            refuse_if_gone_back(ports)
            self._whole_at = monotonic()


@cache
def records() -> Records:
    """Of this process."""
    return Records()


def channels() -> dict[str, ChannelKind]:
    """The channels that this deployment has."""
    return read_channels(os.environ.get(names.ENV_CHANNELS, ""))


class MeasuredAttempts:
    """AttemptLedger, of which each answer is measured. A call that is repeated counts again."""

    def __init__(self, ledger: AttemptLedger) -> None:
        self.reserved, self.refund, self.spent = ledger.reserve, ledger.refund, ledger.spent

    def reserve(self, scope: str, attempt_id: str, limit: AttemptLimit) -> tuple[bool, int]:
        """As the ledger does."""
        granted, count = self.reserved(scope, attempt_id, limit)
        emit(lambda: of_attempt(scope, limit, is_granted=granted))
        return granted, count


def node_role_ids() -> list[str]:
    """Ids of the roles whose sessions AWS names after machines."""
    return listed(names.ENV_NODE_ROLE_IDS)


def listed(variable: str) -> list[str]:
    """The names in a variable of the environment, separated by commas."""
    return [name for name in os.environ.get(variable, "").split(",") if name]


def is_ping(event: Event) -> bool:
    """Whether this is no event but a ping that keeps the function warm. It loads what the function will need."""
    if event != names.KEEP_WARM:
        return False
    ports()
    if reads_policy():
        policy()
    return True


def queued(function: str, take: Callable[[str], None], *, acts: bool = True) -> Callable[[Event, object], Event]:
    """Return the handler of a function that SQS feeds in batches. `take` receives the body of one message.

    A function that `acts` by the records leaves its messages in the queue while these have gone back.

    A message stays in its queue while a service does not answer, and fails alone. One on which our own code raises
    `_CRASHES` times goes to quarantine with its error.
    """

    def take_record(record: SQSRecord) -> None:
        try:
            if acts:
                records().must_be_whole(ports())
            take(record.body)
        except Exception as error:
            if is_temporary(error) or int(record.attributes.approximate_receive_count) < _CRASHES:
                raise
            logger().exception("event crashed")
            quarantine(function, record.body, f"{type(error).__name__}: {error}")

    def handler(event: Event, context: object) -> Event:
        if is_ping(event):
            return {}
        processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)
        return dict(
            process_partial_response(event=event, record_handler=take_record, processor=processor, context=None)
        )

    return handler


def step(
    parse: type[Request],
    serve: Callable[[Request], Answer],
    *,
    measure: Callable[[Request, Answer], Iterable[Measure]] = lambda request, answer: (),
) -> Callable[[Event, object], Event | None]:
    """A handler: parse the request, call one service, dump what it answers."""

    def handler(event: Event, context: object) -> Event | None:
        if is_ping(event):
            return None
        request = parse.model_validate(event)
        logger().info("step asked", extra={"request": request.model_dump(mode="json", exclude={"task_token"})})
        records().must_be_whole(ports())
        answer = serve(request)
        emit(lambda: measure(request, answer))
        if answer is None:
            return None
        dumped = answer.model_dump(mode="json")
        logger().info("step answered", extra={"answer": dumped})
        return dumped

    return handler


def explain(error: ValidationError) -> str:
    """Returns what is wrong with an input, field by field: the first few are enough to act on."""
    return "; ".join(map(str, complaints_of(error)[:5]))
