"""Assembles all ports on AWS. The only place where the control plane reads the time."""

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from nodeheal.adapters.aws.calls import client, client_once
from nodeheal.adapters.aws.console import has_console
from nodeheal.adapters.aws.ec2 import Ec2Machines
from nodeheal.adapters.aws.enrolment_tags import AwsEnrolmentTags
from nodeheal.adapters.aws.evidence import S3UploadSigner
from nodeheal.adapters.aws.fleet_index import DynamoFleetIndex
from nodeheal.adapters.aws.heartbeats import DynamoHeartbeats
from nodeheal.adapters.aws.hyperpod import HyperPodMachines
from nodeheal.adapters.aws.items import Table
from nodeheal.adapters.aws.jobs import DynamoJobFindings, DynamoJobNotes, DynamoJobStore
from nodeheal.adapters.aws.limits import DynamoAttemptLedger, DynamoPoolStore
from nodeheal.adapters.aws.liveness_probes import AwsLivenessProbes
from nodeheal.adapters.aws.notifier import AwsNotifier, Destinations
from nodeheal.adapters.aws.owners import SnsConfirmations
from nodeheal.adapters.aws.pauses import DynamoPauseStore
from nodeheal.adapters.aws.records_epoch import DynamoRecordsEpoch
from nodeheal.adapters.aws.ssm import SsmNodeCommands
from nodeheal.adapters.aws.stores import DynamoHardwareStore, DynamoIncidentStore, DynamoNodeStore, DynamoOperationStore
from nodeheal.adapters.aws.workflows import StepFunctionsWorkflows
from nodeheal.adapters.node_commands import NodeCommandsByScheduler
from nodeheal.adapters.schedulers import schedulers
from nodeheal.contract import names
from nodeheal.domain.review.console_links import ConsoleLinks
from nodeheal.ports import Ports


def clock() -> datetime:
    """Return the present time, in UTC."""
    return datetime.now(UTC)


def aws_ports(
    table: str,
    recover_node_arn: str,
    to: Destinations,
    make: Callable[[str], Any] = client,
    make_once: Callable[[str], Any] = client_once,
    evidence_bucket: str = "",
    runbooks: str = "",
    run_job_arn: str = "",
    node_role_ids: Collection[str] = (),
    hyperpod_clusters: Sequence[str] = (),
    controllers_once: Callable[[str], Any] | None = None,
    task_roles: Sequence[str] = (),
    find_node_roles: Callable[[], Collection[str]] = tuple,
) -> Ports:
    """Create ports over the AWS clients of `make` and `make_once`; each client is created when its port is
    first used. `controllers_once`: of the role that asks clusters' controllers; None: the caller asks them.
    `task_roles`: those that a job's program may be given. `find_node_roles`: finds the nodes' roles for a caller that
    gives no `node_role_ids`.
    """
    rows = Table(make("dynamodb"), table)
    hyperpod = HyperPodMachines(make, make_once, hyperpod_clusters)
    controllers = controllers_once or make_once
    served = schedulers(make, make_once, controllers, clock, hyperpod, task_roles)
    by_ssm = SsmNodeCommands(partial(make, "ssm"), partial(make_once, "ssm"), clock)
    return Ports(
        nodes=DynamoNodeStore(rows),
        hardware=DynamoHardwareStore(rows),
        incidents=DynamoIncidentStore(rows),
        attempts=DynamoAttemptLedger(rows, clock),
        pools=DynamoPoolStore(rows),
        pauses=DynamoPauseStore(rows),
        operations=DynamoOperationStore(rows),
        jobs=DynamoJobStore(rows),
        job_notes=DynamoJobNotes(rows),
        job_findings=DynamoJobFindings(rows),
        schedulers=served,
        commands=NodeCommandsByScheduler(served.node_commands, by_ssm),
        machines=Ec2Machines(make, make_once),
        hyperpod=hyperpod,
        workflows=StepFunctionsWorkflows(partial(make, "stepfunctions"), recover_node_arn, run_job_arn),
        notifier=AwsNotifier(partial(make, "events"), partial(make, "sns"), partial(make, "sqs"), rows, to, clock),
        fleet_index=DynamoFleetIndex(rows),
        heartbeats=DynamoHeartbeats(rows.client, names.HEARTBEATS_TABLE, node_role_ids, find_node_roles),
        epoch=DynamoRecordsEpoch(rows, rows.client, names.HEARTBEATS_TABLE),
        enrolment_tags=AwsEnrolmentTags(make, hyperpod),
        liveness_probes=AwsLivenessProbes(served, partial(make, "ssm"), partial(make, "ec2"), hyperpod, clock),
        has_confirmed=SnsConfirmations(partial(make, "sns"), to.owners_topic_arn),
        sign_upload=S3UploadSigner(partial(make, "s3"), evidence_bucket, clock),
        clock=clock,
        console_links=ConsoleLinks(recover_node_arn if has_console() else "", runbooks),
    )
