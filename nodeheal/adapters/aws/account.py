"""Implements the checks of `nodeheal doctor` in an account, before and after a deployment. It only reads.

Each check is one function that yields findings. A check that AWS denies yields "cannot tell", with the denied action,
so that one missing permission hides nothing else.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from nodeheal.adapters.aws.calls import code_of
from nodeheal.adapters.aws.failures import explain, region_in_use
from nodeheal.adapters.aws.finding import BAD, GOOD, UNKNOWN, WARNING, DoctorFinding
from nodeheal.contract import names
from nodeheal.contract.vocabulary import NodeState, Provider, SchedulerKind, Verdict
from nodeheal.domain.errors import NodehealError
from nodeheal.domain.fleet.liveness import Heartbeat, apply_heartbeat
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.humanize import counted
from nodeheal.domain.policy.policy import RecoveryPolicy, parse_policy
from nodeheal.domain.policy.policy_models import Mode
from nodeheal.ports import Ports

# Warm-up pings, the sweep and the steps of one incident use up a new account's 10.
LEAST_CONCURRENCY = 100
STANDARD_TIER_NODES = 1_000  # hybrid nodes of an account and Region that SSM's standard tier accepts
BOOTSTRAP = "/cdk-bootstrap/hnb659fds/version"
TIER = "/ssm/managed-instance/activation-tier"
# Service Quotas of AppConfig: General Reference, AWS AppConfig endpoints and quotas.
APPLICATIONS_QUOTA, STRATEGIES_QUOTA, DOCUMENT_QUOTA = "L-EEB0151E", "L-F59D302B", "L-48F9B951"
BYTES_IN_A_KILOBYTE = 1_024
NEARLY_FULL = 0.8  # of a quota
ALARM_PREFIX, LOG_PREFIX = "nodeheal-", "/nodeheal/"
NAMED = 5  # nodes in one line
INSTANCES_IN_A_FILTER = 200  # DescribeInstances' limit for the values of a filter
DENIED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthorizationError")
QUEUES = {
    "EventDlqUrl": "events that ingest could not process",
    "QuarantineUrl": "messages that could not be read",
    "UndeliveredUrl": "events that reached no function",
}


@dataclass
class Account:
    """What the checks share. `make`: a boto3 client of a service; `ports`: the control plane's, over `table`, once it
    exists; `document`: the text of the active policy. Policy and nodes are read once. `registrations`: of a scheduler
    with a registry, what its nodes lack there.
    """

    make: Callable[[str], Any]
    ports: Callable[[], Ports]
    document: Callable[[], str]
    registrations: "Mapping[SchedulerKind, Registration]"
    table: str = names.TABLE
    outputs: dict[str, str] = field(default_factory=dict)  # of the stack; empty: it is not deployed
    has_table: bool = False

    @cached_property
    def policy_text(self) -> str:
        """Return the active policy document."""
        return self.document()

    @cached_property
    def policy(self) -> RecoveryPolicy:
        """Return the active policy, parsed."""
        return parse_policy(self.policy_text)

    @cached_property
    def pools(self) -> dict[str, list[Node]]:
        """Return the nodes of each pool that has any."""
        ports = self.ports()
        return {pool: list(ports.nodes.in_pool(pool)) for pool in sorted(ports.fleet_index.pools())}


# Gives the problems of these nodes of one scheduler by node id. It makes clients by their service.
Registration = Callable[[Callable[[str], Any], Sequence[Node]], Mapping[str, "NodeProblem"]]


@dataclass(frozen=True)
class Look:
    """One check. `subject` names it where AWS denies the call."""

    subject: str
    findings: Callable[[Account], Iterator[DoctorFinding]]
    reads_nodes: bool = False


def examine(account: Account, of_schedulers: Sequence[Look] = ()) -> Iterator[DoctorFinding]:
    """Run every check, causes before consequences.

    `of_schedulers`: the checks of the schedulers' adapters.
    """
    for look in BEFORE:
        yield from _looked(look, account)
    if account.outputs:
        for look in (*AFTER, *of_schedulers):
            if account.has_table or not look.reads_nodes:
                yield from _looked(look, account)


def _looked(look: Look, account: Account) -> Iterator[DoctorFinding]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield from look.findings(account)
    except ClientError as error:
        denied = code_of(error) in DENIED
        todo = "attach the managed policy nodeheal-doctor-REGION of the stack, or ReadOnlyAccess" if denied else ""
        yield DoctorFinding(look.subject, UNKNOWN, f"{error.operation_name}: {error}", todo or explain(error).todo)
    except BotoCoreError as error:
        yield DoctorFinding(look.subject, UNKNOWN, str(error), explain(error).todo)
    except (NodehealError, ValueError) as error:
        yield DoctorFinding(look.subject, BAD, str(error))


# Before a deployment -------------------------------------------------------------------------------------------------


def _bootstrap(account: Account) -> Iterator[DoctorFinding]:
    from botocore.exceptions import ClientError

    try:
        version = account.make("ssm").get_parameter(Name=BOOTSTRAP)["Parameter"]["Value"]
    except ClientError as error:
        if code_of(error) != "ParameterNotFound":
            raise
        todo = f"run `make bootstrap` once; {_or_elsewhere()}"
        yield DoctorFinding("cdk bootstrap", BAD, "this account and Region are not bootstrapped", todo)
        return
    yield DoctorFinding("cdk bootstrap", GOOD, f"version {version}")


def _or_elsewhere() -> str:
    return f"or is AWS_REGION wrong? (now: {region_in_use()})"


def _concurrency(account: Account) -> Iterator[DoctorFinding]:
    limit = account.make("lambda").get_account_settings()["AccountLimit"]["ConcurrentExecutions"]
    is_enough = limit >= LEAST_CONCURRENCY
    todo = f"request {LEAST_CONCURRENCY} concurrent executions (quota L-B99A9384); a new account may have 10"
    detail = f"{limit} functions may run at once in this Region"
    yield DoctorFinding("Lambda concurrency", GOOD if is_enough else BAD, detail, "" if is_enough else todo)


def _stack(account: Account) -> Iterator[DoctorFinding]:
    from botocore.exceptions import ClientError

    try:
        [stack] = account.make("cloudformation").describe_stacks(StackName=names.STACK)["Stacks"]
    except ClientError as error:
        if code_of(error) != "ValidationError":  # CloudFormation's error for a stack that does not exist
            raise
        todo = f"run `make deploy`; {_or_elsewhere()}"
        yield DoctorFinding("stack", WARNING, f"{names.STACK} is not deployed in this Region", todo)
        return
    status = stack["StackStatus"]
    if status.endswith("_COMPLETE") and not status.startswith(("ROLLBACK", "DELETE")):
        account.outputs.update({output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", ())})
        yield DoctorFinding("stack", GOOD, f"{names.STACK} is {status}")
    else:
        todo = (
            "its events name the resource that failed: aws cloudformation describe-stack-events --stack-name nodeheal"
        )
        yield DoctorFinding("stack", BAD, f"{names.STACK} is {status}", todo)


def _appconfig(account: Account) -> Iterator[DoctorFinding]:
    """Check that AppConfig has room for one more application and deployment strategy. A deployed stack has its own."""
    if account.outputs:
        return
    appconfig = account.make("appconfig")
    for what, call, ours, quota in (
        ("applications", "list_applications", names.POLICY_APPLICATION, APPLICATIONS_QUOTA),
        ("deployment strategies", "list_deployment_strategies", names.POLICY_STRATEGY, STRATEGIES_QUOTA),
    ):
        items = [item for page in appconfig.get_paginator(call).paginate() for item in page["Items"]]
        # A removed stack leaves its application, which a new deployment uses again. AWS's own strategies do not count.
        others = [item for item in items if item["Name"] != ours and not item["Id"].startswith("AppConfig.")]
        limit = _quota(account, "appconfig", quota)
        detail = f"{len(others)} of {limit:g} {what} are in use"
        todo = f"delete one, or ask Service Quotas for more of quota {quota} of appconfig"
        is_full = len(others) >= limit
        yield DoctorFinding(f"AppConfig {what}", BAD if is_full else GOOD, detail, todo if is_full else "")


def _quota(account: Account, service: str, code: str) -> float:
    """Return this account's quota from Service Quotas, or AWS's default where it has no value of its own."""
    from botocore.exceptions import ClientError

    quotas = account.make("service-quotas")
    try:
        quota = quotas.get_service_quota(ServiceCode=service, QuotaCode=code)
    except ClientError as error:
        if code_of(error) != "NoSuchResourceException":
            raise
        quota = quotas.get_aws_default_service_quota(ServiceCode=service, QuotaCode=code)
    return float(quota["Quota"]["Value"])


# After a deployment
# -----------------------------------------------------------------------------------------------------


def _emails(account: Account) -> Iterator[DoctorFinding]:
    pages = account.make("sns").get_paginator("list_subscriptions_by_topic")
    subscriptions = [
        entry for page in pages.paginate(TopicArn=account.outputs["TopicArn"]) for entry in page["Subscriptions"]
    ]
    waiting = [
        entry["Endpoint"] for entry in subscriptions if entry["SubscriptionArn"] in ("PendingConfirmation", "Deleted")
    ]
    if not subscriptions:
        todo = "name addresses under alert_emails in cdk.json, and deploy; or subscribe addresses to the topic"
        yield DoctorFinding("alert emails", BAD, "no address is subscribed, so no email is sent", todo)
    elif waiting:
        todo = "copy the link from the email of AWS Notifications: nodeheal emails confirm LINK; no email comes before"
        yield DoctorFinding("alert emails", BAD, f"not confirmed: {some(waiting)}", todo)
    elif exposed := [
        entry["Endpoint"] for entry in subscriptions if entry["Protocol"] == "email" and _takes_any_no(account, entry)
    ]:
        detail = f"anybody who gets a forwarded email can unsubscribe {some(exposed)}"
        todo = "subscribe it again and confirm by `nodeheal emails confirm`: docs/operations-email.md"
        yield DoctorFinding("alert emails", WARNING, detail, todo)
    else:
        yield DoctorFinding("alert emails", GOOD, f"{counted(len(subscriptions), 'confirmed subscription')}")


def _takes_any_no(account: Account, subscription: Mapping[str, str]) -> bool:
    """Whether the link at the end of an email is enough to end its subscription: it was confirmed without a
    signature.
    """
    asked = account.make("sns").get_subscription_attributes(SubscriptionArn=subscription["SubscriptionArn"])
    return bool(asked["Attributes"]["ConfirmationWasAuthenticated"] != "true")


def _policy(account: Account) -> Iterator[DoctorFinding]:
    yield DoctorFinding("policy", GOOD, f"a document is in force (version {account.policy.version})")


def _policy_size(account: Account) -> Iterator[DoctorFinding]:
    size = len(account.policy_text.encode())
    limit = _quota(account, "appconfig", DOCUMENT_QUOTA) * BYTES_IN_A_KILOBYTE
    is_near = size > NEARLY_FULL * limit
    todo = f"shorten it, or ask Service Quotas for more of quota {DOCUMENT_QUOTA} of appconfig; the next may be refused"
    detail = f"{size:,} of the {limit:,.0f} bytes that AppConfig accepts"
    yield DoctorFinding("policy size", WARNING if is_near else GOOD, detail, todo if is_near else "")


def _state_table(account: Account) -> Iterator[DoctorFinding]:
    from botocore.exceptions import ClientError

    try:
        pools = account.pools
    except ClientError as error:
        todo = f"leave out --table: the stack's table is {names.TABLE}; to list all: aws dynamodb list-tables"
        if code_of(error) == "ResourceNotFoundException":
            yield DoctorFinding(
                "state table", BAD, f"the table {account.table} does not exist in this account and Region", todo
            )
        # The doctor's policy allows only the stack's table.
        elif code_of(error) in DENIED and account.table != names.TABLE:
            yield DoctorFinding(
                "state table", UNKNOWN, f"you may not read the table {account.table}, if it exists", todo
            )
        else:
            raise
        return
    account.has_table = True
    detail = f"{account.table}: {counted(len(pools), 'pool')}, {counted(sum(map(len, pools.values())), 'node')}"
    yield DoctorFinding("state table", GOOD, detail)


def _pool_policies(account: Account) -> Iterator[DoctorFinding]:
    for pool in account.pools:
        mode = account.policy.pool(pool).mode
        if pool not in account.policy.pools:
            detail = f"the policy does not name it; default_pool holds (mode {mode})"
            todo = "to have it otherwise, name it in a FILE of its own: nodeheal policy apply FILE --merge --why …"
            yield DoctorFinding(f"pool {pool}", GOOD if mode is Mode.observe else WARNING, detail, todo)
        else:
            yield DoctorFinding(f"pool {pool}", GOOD, f"mode {mode}")


@dataclass(frozen=True)
class NodeProblem:
    """What is wrong with a node, and what to do about it."""

    what: str
    todo: str
    state: str = BAD


_ENROLL_COMMAND = "nodeheal nodes enroll NODE --pool POOL --why …"
ENROLL = f"{_ENROLL_COMMAND}; without the tag IAM denies every action"
NEVER_REPORTED = NodeProblem(
    "its agent has never reported",
    "on the node: nodeheal-agent doctor (role, bus, credentials); to install it: docs/agent.md",
)
SILENT = NodeProblem("silent", "on the node: systemctl status nodeheal-agent; nodeheal-agent doctor")
NO_ROLE = NodeProblem("it has no role: no instance profile", "associate the profile of docs/ec2.md, step 1")
NOT_IN_SSM = NodeProblem(
    "SSM does not know it, or has lost its connection",
    "on the node: systemctl status amazon-ssm-agent; without it nodeheal cannot reboot or diagnose it",
)
NO_TAG_IN_SSM = NodeProblem(f"the machine lacks the tag {names.MANAGED_TAG}", ENROLL)
NEVER_DIAGNOSED = NodeProblem(
    "never diagnosed, so it is not known whether DCGM works there",
    "nodeheal nodes diagnose NODE --why …, or all free ones of a pool: nodeheal pools sweep POOL --why …; "
    "docs/ecs-anywhere.md, First diagnosis",
    WARNING,
)


def _unknown_role(role_id: str) -> NodeProblem:
    todo = "if no person and no program can assume that role, name it under node_role_ids in cdk.json and deploy"
    return NodeProblem(f"it reports under the role id {role_id}, whose signatures nodeheal does not accept", todo)


def _other_role(role: str, ours: str) -> NodeProblem:
    todo = (
        f"name its id under node_role_ids in cdk.json, and allow it what {ours} may: docs/agent.md, Let it speak; "
        "or give the node the stack's role"
    )
    return NodeProblem(f"its role is {role}, which is not the stack's", todo, WARNING)


def _not_passed(node: Node) -> NodeProblem | None:
    """Return the newest diagnosis, where it has not passed; nothing where it has passed since."""
    diagnosis = node.last_diagnosis
    if diagnosis is None:
        return NEVER_DIAGNOSED if node.passed_at is None else None
    if diagnosis.verdict is Verdict.OK or (node.passed_at is not None and node.passed_at > diagnosis.at):
        return None
    detail = f"its last diagnosis is {diagnosis.verdict}{f' ({diagnosis.reason})' if diagnosis.reason else ''}"
    return NodeProblem(
        detail, "on the node: nodeheal-agent doctor names missing tools; docs/ecs-anywhere.md, DCGM", WARNING
    )


def _nodes(account: Account) -> Iterator[DoctorFinding]:
    """Check each pool for nodes that do not report, lack a tag or a role, are unknown to SSM or to their scheduler, or
    were never diagnosed.
    """
    ports = account.ports()
    heartbeats, now = ports.heartbeats.newest(), ports.clock()
    ssm = _managed_nodes(account)
    pools = {pool: [n for n in nodes if n.state is not NodeState.RETIRED] for pool, nodes in account.pools.items()}
    pools = {
        pool: [apply_heartbeat(node, heartbeats.get(node.instance_id), now) for node in nodes]
        for pool, nodes in pools.items()
    }
    mute = [node for nodes in pools.values() for node in nodes if _is_mute(node, account, now)]
    roles = _roles(account, mute, ssm)
    ours = account.outputs.get("NodeRoleArn", "").rpartition("/")[2]
    for pool, nodes in pools.items():
        unregistered: dict[str, NodeProblem] = {}
        for kind, check in account.registrations.items():
            unregistered |= check(account.make, [node for node in nodes if node.cluster.kind is kind])
        problems: dict[NodeProblem, list[str]] = {}
        for node in nodes:
            wrong = [
                *_not_reporting(node, node in mute, roles.get(node.instance_id), ours),
                *_not_believed(node, heartbeats.get(node.instance_id), account),
                *_not_in_ssm(ssm.get(node.instance_id)),
                unregistered.get(node.node_id),
                _not_passed(node) if node.has_reported else None,
            ]
            for problem in filter(None, wrong):
                problems.setdefault(problem, []).append(node.node_id)
        for problem, whom in problems.items():
            yield DoctorFinding(f"nodes of {pool}", problem.state, f"{problem.what}: {some(whom)}", problem.todo)
        if not problems:
            detail = f"{counted(len(nodes), 'node')}, each enrolled, reporting and diagnosed"
            yield DoctorFinding(f"nodes of {pool}", GOOD, detail)
    unenrolled = [node.node_id for node in ports.nodes.unenrolled()]
    if unenrolled:
        detail = f"they report, but are not enrolled: {some(unenrolled)}"
        yield DoctorFinding("unenrolled nodes", WARNING, detail, _ENROLL_COMMAND)
    known = {*(node.instance_id for nodes in account.pools.values() for node in nodes), *unenrolled}
    without_agent = sorted(ssm.keys() - known)
    if without_agent:
        detail = f"SSM knows machines that nodeheal does not: {some([ssm[machine].named for machine in without_agent])}"
        yield DoctorFinding("machines", WARNING, detail, "if they are nodes: docs/agent.md, Put it on a node")
    if not unenrolled and not any(pools.values()):
        yield DoctorFinding(
            "nodes", WARNING, "no node has reported, and none is enrolled", "docs/agent.md, Put it on a node"
        )


def _is_mute(node: Node, account: Account, now: datetime) -> bool:
    silent_after = timedelta(seconds=account.policy.silence.silent_seconds)
    return not node.has_reported or now - node.last_seen > silent_after


def _not_reporting(node: Node, is_mute: bool, role: str | None, ours: str) -> Iterator[NodeProblem]:
    """Return what a silent node lacks. Its role is checked only here: a node that reports has a role that
    permits it.
    """
    if not is_mute:
        return
    yield SILENT if node.has_reported else NEVER_REPORTED
    if role == "":
        yield NO_ROLE
    elif role is not None and role != ours:
        yield _other_role(role, ours)


def _not_believed(node: Node, heartbeat: Heartbeat | None, account: Account) -> Iterator[NodeProblem]:
    trusted = account.outputs.get(names.NODE_ROLES_OUTPUT, "")
    if heartbeat is not None and trusted and heartbeat.role_id not in trusted.split(","):
        yield _unknown_role(heartbeat.role_id)


def _not_in_ssm(ssm: "_Managed | None") -> Iterator[NodeProblem]:
    if ssm is None or not ssm.is_online:
        yield NOT_IN_SSM
    elif not ssm.is_managed:
        yield NO_TAG_IN_SSM


@dataclass(frozen=True)
class _Managed:
    name: str
    role: str  # of the activation; of an EC2 instance only where SSM's default host management gave it one
    is_online: bool
    is_managed: bool

    @property
    def named(self) -> str:
        """Its id with its role, where SSM knows it."""
        return f"{self.name} (role {self.role})" if self.role else self.name


def _managed_nodes(account: Account) -> dict[str, _Managed]:
    """Return every machine that SSM knows, by its id."""
    pages = account.make("ssm").get_paginator("describe_instance_information")
    tagged = [{"Key": f"tag:{names.MANAGED_TAG}", "Values": [names.MANAGED_TAG_VALUE]}]
    marked = {info["InstanceId"] for page in pages.paginate(Filters=tagged) for info in page["InstanceInformationList"]}
    infos = [info for page in pages.paginate() for info in page["InstanceInformationList"]]
    return {
        info["InstanceId"]: _Managed(
            info["InstanceId"],
            info.get("IamRole", ""),
            info.get("PingStatus") == "Online",
            info["InstanceId"] in marked,
        )
        for info in infos
    }


def _roles(account: Account, nodes: Sequence[Node], ssm: Mapping[str, _Managed]) -> dict[str, str]:
    """Return the role of each node that SSM or EC2 knows, by machine; empty: it has none."""
    hybrid = [node.instance_id for node in nodes if node.provider is Provider.hybrid]
    roles = {name: ssm[name].role for name in hybrid if name in ssm and ssm[name].role}
    on_ec2 = [node.instance_id for node in nodes if node.provider is Provider.ec2]
    pages = account.make("ec2").get_paginator("describe_instances") if on_ec2 else None
    in_profiles: dict[str, str] = {}
    for start in range(0, len(on_ec2), INSTANCES_IN_A_FILTER):
        some = on_ec2[start : start + INSTANCES_IN_A_FILTER]
        for page in pages.paginate(Filters=[{"Name": "instance-id", "Values": some}]) if pages else ():
            for machine in (machine for reservation in page["Reservations"] for machine in reservation["Instances"]):
                profile = machine.get("IamInstanceProfile", {}).get("Arn", "").rpartition("/")[2]
                if profile and profile not in in_profiles:
                    in_profiles[profile] = _role_in(account, profile)
                roles[machine["InstanceId"]] = in_profiles.get(profile, "")
    return roles


def _role_in(account: Account, profile: str) -> str:
    roles = account.make("iam").get_instance_profile(InstanceProfileName=profile)["InstanceProfile"]["Roles"]
    return str(roles[0]["RoleName"]) if roles else ""


def _signing_keys(account: Account) -> Iterator[DoctorFinding]:
    """Check that no two machines have published one key: a copied disk has its origin's."""
    pages = account.make("dynamodb").get_paginator("scan").paginate(TableName=names.HEARTBEATS_TABLE)
    machines: dict[str, set[str]] = {}
    for item in (item for page in pages for item in page["Items"]):
        machine = item[names.HEARTBEAT_KEY]["S"].rpartition(":")[2]  # one that got another role has two items
        for name, value in item.items():
            if name.startswith(names.HEARTBEAT_KEY_PREFIX):
                machines.setdefault(value.get("S", "").partition(" ")[0], set()).add(machine)
    shared = [sorted(sharing) for key, sharing in machines.items() if key and len(sharing) > 1]
    for nodes in shared:
        detail = f"one signing key is in the items of {some(nodes)}: each of them could sign as the others"
        yield DoctorFinding("signing keys", BAD, detail, "docs/agent.md, Before you make an image")
    if not shared:
        yield DoctorFinding("signing keys", GOOD, "no two machines share one")


def _ssm_tier(account: Account) -> Iterator[DoctorFinding]:
    hybrid = sum(node.provider is Provider.hybrid for nodes in account.pools.values() for node in nodes)
    tier = account.make("ssm").get_service_setting(SettingId=TIER)["ServiceSetting"]["SettingValue"]
    if hybrid > STANDARD_TIER_NODES and tier != "advanced":
        detail = f"{hybrid} hybrid nodes, and the standard tier accepts {STANDARD_TIER_NODES}"
        todo = f"aws ssm update-service-setting --setting-id {TIER} --setting-value advanced (billed by the hour)"
        yield DoctorFinding("SSM tier", BAD, detail, todo)
    else:
        yield DoctorFinding("SSM tier", GOOD, f"{tier}, {counted(hybrid, 'hybrid node')}")


def _agent_rollout(account: Account) -> Iterator[DoctorFinding]:
    """Check the last run of each State Manager association that installs the agent."""
    ssm = account.make("ssm")
    pages = ssm.get_paginator("list_associations").paginate(
        AssociationFilterList=[{"key": "Name", "value": names.INSTALL_DOCUMENT}]
    )
    for association in (association for page in pages for association in page["Associations"]):
        runs = [
            run
            for page in ssm.get_paginator("describe_association_executions").paginate(
                AssociationId=association["AssociationId"]
            )
            for run in page["AssociationExecutions"]
        ]
        subject = f"agent rollout {association['AssociationName']}"
        if not runs:
            yield DoctorFinding(
                subject, UNKNOWN, "it has not run yet", "State Manager runs it at its creation, and each day"
            )
            continue
        last = max(runs, key=lambda run: run["CreatedTime"])
        counts, at = last.get("ResourceCountByStatus") or "no node", last["CreatedTime"]
        detail = f"{last['Status']} on {at:%Y-%m-%d %H:%M} ({counts})"
        state = {"Success": GOOD, "Failed": BAD}.get(last["Status"], WARNING)
        yield DoctorFinding(subject, state, detail, "docs/agent.md, A rollout that failed" if state != GOOD else "")


def _agent_bucket(account: Account) -> Iterator[DoctorFinding]:
    """Check that nodes can decrypt the wheelhouse, where its bucket has a key of the operator's."""
    from botocore.exceptions import ClientError

    bucket, named = account.outputs.get("AgentBucketName"), account.outputs.get("AgentBucketKeyArn", "")
    if not bucket:
        return
    try:
        rules = account.make("s3").get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"]
    except ClientError as error:
        if code_of(error) != "ServerSideEncryptionConfigurationNotFoundError":
            raise
        rules = []
    used = [rule.get("ApplyServerSideEncryptionByDefault", {}).get("KMSMasterKeyID", "") for rule in rules]
    keys = [key for key in used if key and not key.endswith("alias/aws/s3")]
    wrong = [key for key in keys if key.rpartition("/")[2] != named.rpartition("/")[2]]
    if wrong:
        detail = f"{bucket} is encrypted with {some(wrong)}, by which nodes may not decrypt the agent's wheelhouse"
        todo = "name the key's ARN under staging_key in cdk.json and deploy; the key's policy must allow the node roles"
        yield DoctorFinding("staging bucket", BAD, detail, todo)
    else:
        yield DoctorFinding("staging bucket", GOOD, f"nodes can decrypt what is in {bucket}")


def _log_groups(account: Account) -> Iterator[DoctorFinding]:
    pages = account.make("logs").get_paginator("describe_log_groups").paginate(logGroupNamePrefix=LOG_PREFIX)
    groups = [group for page in pages for group in page["logGroups"]]
    endless = [group["logGroupName"] for group in groups if "retentionInDays" not in group]
    if not groups:
        yield DoctorFinding(
            "log groups", BAD, f"no log group under {LOG_PREFIX}", "run `make deploy`: the stack creates them"
        )
    elif endless:
        yield DoctorFinding(
            "log groups", WARNING, f"kept without end: {some(endless)}", "run `make deploy`: it sets retention"
        )
    else:
        yield DoctorFinding("log groups", GOOD, counted(len(groups), "log group"))


def _alarms(account: Account) -> Iterator[DoctorFinding]:
    pages = account.make("cloudwatch").get_paginator("describe_alarms").paginate(AlarmNamePrefix=ALARM_PREFIX)
    alarms = [alarm for page in pages for alarm in page["MetricAlarms"]]
    ringing = [alarm for alarm in alarms if alarm.get("StateValue") == "ALARM"]
    for alarm in ringing:
        yield DoctorFinding(f"alarm {alarm['AlarmName']}", BAD, "is in ALARM", alarm.get("AlarmDescription", ""))
    muted = [alarm["AlarmName"] for alarm in alarms if not alarm.get("ActionsEnabled", True)]
    if muted:
        yield DoctorFinding(
            "alarms",
            WARNING,
            f"their actions are disabled, so they notify nobody: {some(muted)}",
            "enable their actions",
        )
    if not alarms:
        yield DoctorFinding("alarms", BAD, "the stack has no alarm", "run `make deploy`: the stack creates them")
    elif not ringing and not muted:
        yield DoctorFinding("alarms", GOOD, f"{counted(len(alarms), 'alarm')}, none in ALARM")


def _queues(account: Account) -> Iterator[DoctorFinding]:
    full = 0
    for output, what in QUEUES.items():
        url = account.outputs.get(output)
        if url is None:
            continue
        asked = account.make("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
        count = int(asked["Attributes"]["ApproximateNumberOfMessages"])
        if count:
            full += 1
            todo = "docs/operations.md says how to read them, and how to redrive them"
            yield DoctorFinding(f"queue {url.rsplit('/', 1)[-1]}", WARNING, f"{what}: {count}", todo)
    if not full:
        yield DoctorFinding("dead-letter queues", GOOD, "empty")


BEFORE: Sequence[Look] = (
    Look("cdk bootstrap", _bootstrap),
    Look("Lambda concurrency", _concurrency),
    Look("stack", _stack),
    Look("AppConfig quotas", _appconfig),
)
AFTER: Sequence[Look] = (
    Look("alert emails", _emails),
    Look("policy", _policy),
    Look("policy size", _policy_size),
    Look("state table", _state_table),
    Look("pools", _pool_policies, reads_nodes=True),
    Look("nodes", _nodes, reads_nodes=True),
    Look("signing keys", _signing_keys, reads_nodes=True),
    Look("SSM tier", _ssm_tier, reads_nodes=True),
    Look("agent rollout", _agent_rollout),
    Look("staging bucket", _agent_bucket),
    Look("log groups", _log_groups),
    Look("alarms", _alarms),
    Look("dead-letter queues", _queues),
)


def some(words: Sequence[str]) -> str:
    """Name the first few of them, and the number of others."""
    more = f" and {len(words) - NAMED} more" if len(words) > NAMED else ""
    return f"{', '.join(words[:NAMED])}{more}"
