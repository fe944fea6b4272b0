"""What `nodeheal doctor` looks at in an account, before and after a deployment. It reads and changes nothing.

Each look is one function that yields findings. A look that AWS denies yields "cannot tell", with the denied action, so
that one missing permission hides nothing else.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from nodeheal.adapters.aws.calls import code_of
from nodeheal.contract import names
from nodeheal.contract.vocabulary import NodeState, Provider
from nodeheal.domain.beat import after
from nodeheal.domain.counted import counted
from nodeheal.domain.knobs import Mode
from nodeheal.domain.node import Node
from nodeheal.domain.policy import RecoveryPolicy
from nodeheal.ports import Ports

GOOD, WARNING, BAD, UNKNOWN = "ok", "warn", "fail", "unknown"
# The pings that keep functions warm, the sweep and one incident's steps use up a new account's 10.
LEAST_CONCURRENCY = 100
STANDARD_TIER_NODES = 1_000  # hybrid nodes of an account and Region that SSM takes without its advanced tier
BOOTSTRAP = "/cdk-bootstrap/hnb659fds/version"
TIER = "/ssm/managed-instance/activation-tier"
ALARM_PREFIX, LOG_PREFIX = "nodeheal-", "/nodeheal/"
NAMED = 5  # nodes in one line
QUEUES = {
    "EventDlqUrl": "events that ingest could not take",
    "QuarantineUrl": "messages that could not be read",
    "UndeliveredUrl": "events that reached no function",
}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `todo`: what to do about it; empty where nothing is to be done."""

    what: str
    state: str
    detail: str
    todo: str = ""


@dataclass
class Account:
    """What the looks share. `make`: a boto3 client of a service; `ports`: the control plane's, once it is there."""

    make: Callable[[str], Any]
    ports: Callable[[], Ports]
    policy: Callable[[], RecoveryPolicy]
    outputs: dict[str, str] = field(default_factory=dict)  # of the stack; empty: it is not deployed


Look = Callable[[Account], Iterator[Finding]]


def examine(account: Account) -> Iterator[Finding]:
    """Every look, in an order in which each problem comes before what follows from it."""
    for look in BEFORE:
        yield from _looked(look, account)
    if account.outputs:
        for look in AFTER:
            yield from _looked(look, account)


def _looked(look: Look, account: Account) -> Iterator[Finding]:
    from botocore.exceptions import ClientError

    try:
        yield from look(account)
    except ClientError as error:
        name = look.__name__.strip("_").replace("_", " ")
        denied = code_of(error) in (
            "AccessDenied",
            "AccessDeniedException",
            "UnauthorizedOperation",
            "AuthorizationError",
        )
        todo = "attach the managed policy nodeheal-doctor-REGION of the stack, or ReadOnlyAccess" if denied else ""
        yield Finding(name, UNKNOWN, f"{error.operation_name}: {error}", todo)


# Before a deployment -------------------------------------------------------------------------------------------------


def _bootstrap(account: Account) -> Iterator[Finding]:
    from botocore.exceptions import ClientError

    try:
        version = account.make("ssm").get_parameter(Name=BOOTSTRAP)["Parameter"]["Value"]
    except ClientError as error:
        if code_of(error) != "ParameterNotFound":
            raise
        yield Finding("cdk bootstrap", BAD, "this account and Region are not bootstrapped", "run `make bootstrap` once")
        return
    yield Finding("cdk bootstrap", GOOD, f"version {version}")


def _concurrency(account: Account) -> Iterator[Finding]:
    limit = account.make("lambda").get_account_settings()["AccountLimit"]["ConcurrentExecutions"]
    is_enough = limit >= LEAST_CONCURRENCY
    todo = f"ask Service Quotas for at least {LEAST_CONCURRENCY} concurrent executions; a new account may have only 10"
    told = f"{limit} functions may run at once in this Region"
    yield Finding("Lambda concurrency", GOOD if is_enough else BAD, told, "" if is_enough else todo)


def _stack(account: Account) -> Iterator[Finding]:
    from botocore.exceptions import ClientError

    try:
        [stack] = account.make("cloudformation").describe_stacks(StackName=names.STACK)["Stacks"]
    except ClientError as error:
        if code_of(error) != "ValidationError":  # CloudFormation's word for a stack that is not there
            raise
        yield Finding("stack", WARNING, f"{names.STACK} is not deployed in this Region", "run `make deploy`")
        return
    status = stack["StackStatus"]
    if status.endswith("_COMPLETE") and not status.startswith(("ROLLBACK", "DELETE")):
        account.outputs.update({one["OutputKey"]: one["OutputValue"] for one in stack.get("Outputs", ())})
        yield Finding("stack", GOOD, f"{names.STACK} is {status}")
    else:
        todo = (
            "its events name the resource that failed: aws cloudformation describe-stack-events --stack-name nodeheal"
        )
        yield Finding("stack", BAD, f"{names.STACK} is {status}", todo)


# After it ------------------------------------------------------------------------------------------------------------


def _emails(account: Account) -> Iterator[Finding]:
    pages = account.make("sns").get_paginator("list_subscriptions_by_topic")
    found = [one for page in pages.paginate(TopicArn=account.outputs["TopicArn"]) for one in page["Subscriptions"]]
    waiting = [one["Endpoint"] for one in found if one["SubscriptionArn"] in ("PendingConfirmation", "Deleted")]
    if not found:
        todo = "name addresses under alert_emails in cdk.json, and deploy; or subscribe what you have to the topic"
        yield Finding("alert emails", BAD, "no address is subscribed, so no email is sent", todo)
    elif waiting:
        todo = "open the email of AWS Notifications there and confirm; no email comes before"
        yield Finding("alert emails", BAD, f"not confirmed: {_some(waiting)}", todo)
    else:
        yield Finding("alert emails", GOOD, f"{counted(len(found), 'confirmed subscription')}")


def _policy(account: Account) -> Iterator[Finding]:
    policy = account.policy()
    yield Finding("policy", GOOD, f"a document is in force (version {policy.version})")
    for pool in sorted(account.ports().watchlist.pools()):
        mode = policy.pool(pool).mode
        if pool not in policy.pools:
            told = f"the policy does not name it; default_pool holds (mode {mode})"
            todo = "name it in the policy when you want something else: nodeheal policy apply FILE"
            yield Finding(f"pool {pool}", GOOD if mode is Mode.observe else WARNING, told, todo)
        else:
            yield Finding(f"pool {pool}", GOOD, f"mode {mode}")


def _nodes(account: Account) -> Iterator[Finding]:
    """Of every pool: who has not reported, who has no tag, whom SSM or ECS does not know, who was never diagnosed."""
    ports, policy = account.ports(), account.policy()
    beats, now = ports.heartbeats.newest(), ports.clock()
    silent_after = timedelta(seconds=policy.silence.silent_seconds)
    ssm = _managed_nodes(account)
    known: set[str] = set()
    for pool in sorted(ports.watchlist.pools()):
        nodes = [node for node in ports.nodes.in_pool(pool) if node.state is not NodeState.RETIRED]
        known |= {node.instance_id for node in nodes}
        instances = {c: _container_instances(account, c) for c in {node.cluster for node in nodes}}
        seen = [after(node, beats.get(node.instance_id), now) for node in nodes]
        complaints: dict[str, list[str]] = {what: [] for what in NODE_TODO}
        for node in seen:
            ecs = instances[node.cluster].get(node.instance_id)
            for what in _wrong_with(node, ssm.get(node.instance_id), ecs, now - node.last_seen > silent_after):
                complaints[what].append(node.node_id)
        for what, whom in complaints.items():
            if whom:
                state = WARNING if what == NEVER_DIAGNOSED else BAD
                yield Finding(f"nodes of {pool}", state, f"{what}: {_some(whom)}", NODE_TODO[what])
        if not any(complaints.values()):
            yield Finding(
                f"nodes of {pool}", GOOD, f"{counted(len(nodes), 'node')}, each enrolled, reporting and diagnosed"
            )
    without_agent = sorted(ssm.keys() - known)
    if without_agent:
        told = f"SSM knows machines that nodeheal has never heard of: {_some(without_agent)}"
        yield Finding("machines", WARNING, told, "if they are nodes: docs/agent.md, Put it on a node")
    if not known:
        yield Finding("nodes", WARNING, "no node has reported, and none is enrolled", "docs/agent.md, Put it on a node")


NEVER_REPORTED = "its agent has never reported"
SILENT = "silent"
NOT_IN_SSM = "SSM does not know it, or has lost it"
NOT_IN_ECS = "not registered in its ECS cluster"
NO_TAG_IN_SSM = f"the machine bears no tag {names.MANAGED_TAG}"
NO_TAG_IN_ECS = f"the container instance bears no tag {names.MANAGED_TAG}"
NEVER_DIAGNOSED = "never diagnosed: whether DCGM works there is not known"
_ENROLL = "nodeheal nodes enroll NODE --pool POOL --why …; without the tag IAM denies every act"
NODE_TODO: Mapping[str, str] = {
    NEVER_REPORTED: "on the node: nodeheal-agent doctor (role, bus, credentials); to install it: docs/agent.md",
    SILENT: "on the node: systemctl status nodeheal-agent; nodeheal-agent doctor",
    NOT_IN_SSM: "on the node: systemctl status amazon-ssm-agent; without it nodeheal cannot reboot or diagnose it",
    NOT_IN_ECS: "on the node: systemctl status ecs; compare ECS_CLUSTER in /etc/ecs/ecs.config",
    NO_TAG_IN_SSM: _ENROLL,
    NO_TAG_IN_ECS: f"{_ENROLL}; new EC2 machines: docs/ec2.md, user data",
    NEVER_DIAGNOSED: "on the node: nodeheal-agent doctor, which names the tools that are missing",
}


def _wrong_with(node: Node, ssm: "_Managed | None", ecs: Mapping[str, str] | None, is_silent: bool) -> Iterator[str]:
    if not node.is_heard:
        yield NEVER_REPORTED
    elif is_silent:
        yield SILENT
    if ssm is None or not ssm.is_online:
        yield NOT_IN_SSM
    elif not ssm.is_managed:
        yield NO_TAG_IN_SSM
    if ecs is None:
        yield NOT_IN_ECS
    elif ecs.get(names.MANAGED_TAG) != names.MANAGED_TAG_VALUE:
        yield NO_TAG_IN_ECS
    if node.is_heard and node.passed_at is None:
        yield NEVER_DIAGNOSED


@dataclass(frozen=True)
class _Managed:
    is_online: bool
    is_managed: bool


def _managed_nodes(account: Account) -> dict[str, _Managed]:
    """Every machine that SSM knows, by its id."""
    pages = account.make("ssm").get_paginator("describe_instance_information")
    tagged = [{"Key": f"tag:{names.MANAGED_TAG}", "Values": [names.MANAGED_TAG_VALUE]}]
    marked = {one["InstanceId"] for page in pages.paginate(Filters=tagged) for one in page["InstanceInformationList"]}
    return {
        one["InstanceId"]: _Managed(one.get("PingStatus") == "Online", one["InstanceId"] in marked)
        for page in pages.paginate()
        for one in page["InstanceInformationList"]
    }


def _container_instances(account: Account, cluster: str) -> dict[str, dict[str, str]]:
    """The tags of each container instance of the cluster, by its machine; the connected one where there are two."""
    ecs = account.make("ecs")
    pages = ecs.get_paginator("list_container_instances").paginate(cluster=cluster)
    found: list[Any] = []
    for page in pages:
        arns = page["containerInstanceArns"]
        if arns:
            asked = ecs.describe_container_instances(cluster=cluster, containerInstances=arns, include=["TAGS"])
            found += asked["containerInstances"]
    found.sort(key=lambda one: one["agentConnected"])
    return {one["ec2InstanceId"]: {tag["key"]: tag["value"] for tag in one.get("tags", ())} for one in found}


def _ssm_tier(account: Account) -> Iterator[Finding]:
    ports = account.ports()
    hybrid = sum(
        node.provider is Provider.hybrid for pool in ports.watchlist.pools() for node in ports.nodes.in_pool(pool)
    )
    tier = account.make("ssm").get_service_setting(SettingId=TIER)["ServiceSetting"]["SettingValue"]
    if hybrid > STANDARD_TIER_NODES and tier != "advanced":
        told = f"{hybrid} hybrid nodes, and the standard tier takes {STANDARD_TIER_NODES}"
        todo = f"aws ssm update-service-setting --setting-id {TIER} --setting-value advanced (billed by the hour)"
        yield Finding("SSM tier", BAD, told, todo)
    else:
        yield Finding("SSM tier", GOOD, f"{tier}, {counted(hybrid, 'hybrid node')}")


def _log_groups(account: Account) -> Iterator[Finding]:
    pages = account.make("logs").get_paginator("describe_log_groups").paginate(logGroupNamePrefix=LOG_PREFIX)
    found = [group for page in pages for group in page["logGroups"]]
    endless = [group["logGroupName"] for group in found if "retentionInDays" not in group]
    if not found:
        yield Finding("log groups", BAD, f"no log group under {LOG_PREFIX}", "run `make deploy`: the stack makes them")
    elif endless:
        yield Finding("log groups", WARNING, f"kept for ever: {_some(endless)}", "run `make deploy`: it sets retention")
    else:
        yield Finding("log groups", GOOD, counted(len(found), "log group"))


def _alarms(account: Account) -> Iterator[Finding]:
    pages = account.make("cloudwatch").get_paginator("describe_alarms").paginate(AlarmNamePrefix=ALARM_PREFIX)
    found = [alarm for page in pages for alarm in page["MetricAlarms"]]
    ringing = [alarm for alarm in found if alarm.get("StateValue") == "ALARM"]
    for alarm in ringing:
        yield Finding(f"alarm {alarm['AlarmName']}", BAD, "is in ALARM", alarm.get("AlarmDescription", ""))
    muted = [alarm["AlarmName"] for alarm in found if not alarm.get("ActionsEnabled", True)]
    if muted:
        yield Finding("alarms", WARNING, f"ring and tell nobody: {_some(muted)}", "enable their actions")
    if not found:
        yield Finding("alarms", BAD, "the stack has no alarm", "run `make deploy`: the stack makes them")
    elif not ringing and not muted:
        yield Finding("alarms", GOOD, f"{counted(len(found), 'alarm')}, none in ALARM")


def _queues(account: Account) -> Iterator[Finding]:
    full = 0
    for output, what in QUEUES.items():
        url = account.outputs.get(output)
        if url is None:
            continue
        asked = account.make("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
        count = int(asked["Attributes"]["ApproximateNumberOfMessages"])
        if count:
            full += 1
            todo = "docs/operations.md says how to read them, and how to send them on"
            yield Finding(f"queue {url.rsplit('/', 1)[-1]}", WARNING, f"{what}: {count}", todo)
    if not full:
        yield Finding("dead-letter queues", GOOD, "empty")


BEFORE: Sequence[Look] = (_bootstrap, _concurrency, _stack)
AFTER: Sequence[Look] = (_emails, _policy, _nodes, _ssm_tier, _log_groups, _alarms, _queues)


def _some(words: Sequence[str]) -> str:
    more = f" and {len(words) - NAMED} more" if len(words) > NAMED else ""
    return f"{', '.join(words[:NAMED])}{more}"
