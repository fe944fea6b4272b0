"""Implements the checks of `nodeheal doctor` for EKS clusters, as far as EKS and EC2 report them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from nodeheal.adapters.aws.account import INSTANCES_IN_A_FILTER, Account, Look, some
from nodeheal.adapters.aws.calls import code_of
from nodeheal.adapters.aws.ec2_remediators import EKS_OPERATOR, NODEGROUP_TAG, reasons_repaired
from nodeheal.adapters.aws.finding import BAD, GOOD, UNKNOWN, WARNING, DoctorFinding
from nodeheal.adapters.kubernetes.access import EksClusters
from nodeheal.adapters.kubernetes.api import ApiError
from nodeheal.adapters.kubernetes.neuron_recovery import NAME, NAMESPACE, SWITCH, is_recovery_on
from nodeheal.contract import names
from nodeheal.contract.vocabulary import NodeState, Provider, SchedulerKind
from nodeheal.domain.errors import NotAccepted, NotFound
from nodeheal.domain.fleet.machine import SWITCH_OFF, Remediator
from nodeheal.domain.humanize import counted

_NEURON_TYPES = ("trn", "inf")
KARPENTER_TAG = "karpenter.sh/nodepool"  # of each instance that Karpenter launches
ANYWHERE = "0.0.0.0/0"
_HTTPS = 443
_USABLE = ("ACTIVE", "UPDATING")
_IN_SETTINGS = "under eks_clusters in cdk.json, and deploy"


def kubernetes_look(role_arn: Callable[[], str]) -> Look:
    """Check every EKS cluster of the settings and of the nodes. `role_arn`: of the role that asks clusters."""

    def findings(account: Account) -> Iterator[DoctorFinding]:
        nodes = [node for in_pool in account.pools.values() for node in in_pool if node.state is not NodeState.RETIRED]
        machines: dict[str, list[str]] = {}
        for node in nodes:
            if node.cluster.kind is SchedulerKind.KUBERNETES:
                machines.setdefault(node.cluster.name, []).extend(
                    [node.instance_id] if node.provider is Provider.ec2 else []
                )
        named = set(filter(None, account.outputs.get(names.EKS_CLUSTERS_OUTPUT, "").split(",")))
        for cluster in sorted(named | machines.keys()):
            yield from _about(account, cluster, role_arn, machines.get(cluster, []), is_named=cluster in named)

    return Look("EKS", findings, reads_nodes=True)


def _about(
    account: Account, name: str, role_arn: Callable[[], str], machines: Sequence[str], *, is_named: bool
) -> Iterator[DoctorFinding]:
    """Check one of them; `machines`: its nodes on EC2."""
    subject = f"EKS cluster {name}"
    described = _existing(account.make("eks").describe_cluster, name=name)
    if described is None:
        detail = "EKS has no cluster of this name in this account and Region"
        todo = f"correct its name {_IN_SETTINGS}; the cluster of a node is in its agent.toml"
        yield DoctorFinding(subject, BAD, detail, todo)
        return
    cluster = described["cluster"]
    if cluster["status"] not in _USABLE:
        todo = f"aws eks describe-cluster --name {name} --query cluster.health"
        yield DoctorFinding(subject, BAD, f"it is {cluster['status']}", todo)
        return
    if not is_named:
        yield DoctorFinding(subject, BAD, "it has nodes, and the functions may not ask it", f"name it {_IN_SETTINGS}")
        return
    instances = list(_instances(account, machines))
    findings = [
        *_endpoint(account, subject, cluster),
        *_access(account, subject, cluster, role_arn()),
        *_auto_mode(subject, cluster, instances),
        *_node_repair(account, subject, name, instances),
        *_neuron_recovery(account, subject, name, instances),
    ]
    yield from findings
    if not any(finding.state in (BAD, WARNING) for finding in findings):
        yield DoctorFinding(subject, GOOD, f"{cluster['status']}; the functions reach and may ask it")


def _endpoint(account: Account, subject: str, cluster: Mapping[str, Any]) -> Iterator[DoctorFinding]:
    """Check that the API server is open to the functions from where they run."""
    network, outputs = cluster["resourcesVpcConfig"], account.outputs
    is_public, is_private = network["endpointPublicAccess"], network["endpointPrivateAccess"]
    allowed = network.get("publicAccessCidrs") or [ANYWHERE]
    groups = [group for group in outputs.get(names.FUNCTION_GROUPS_OUTPUT, "").split(",") if group]
    update = f"aws eks update-cluster-config --name {cluster['name']} --resources-vpc-config"
    if not groups and not is_public:
        detail = "its API server has a private endpoint only, and the functions run outside a VPC"
        todo = f"have them run in {network['vpcId']}: vpc in cdk.json; or {update} endpointPublicAccess=true"
        yield DoctorFinding(subject, BAD, detail, todo)
    elif not groups and ANYWHERE not in allowed:
        detail = f"its public endpoint admits {some(allowed)}, and functions outside a VPC have no fixed address"
        todo = f"have them run in {network['vpcId']}: vpc in cdk.json; or {update} publicAccessCidrs={ANYWHERE}"
        yield DoctorFinding(subject, BAD, detail, todo)
    elif groups and is_private and not _is_open(account, network, groups):
        group = network["clusterSecurityGroupId"]
        todo = (
            f"aws ec2 authorize-security-group-ingress --group-id {group} --protocol tcp --port {_HTTPS} "
            f"--source-group {groups[0]}"
        )
        yield DoctorFinding(subject, BAD, f"port {_HTTPS} of {group} is closed to the functions' {some(groups)}", todo)
    elif groups and not is_private and ANYWHERE not in allowed:
        detail = f"its public endpoint admits {some(allowed)}: the functions come from their NAT gateway's address"
        yield DoctorFinding(subject, WARNING, detail, f"{update} endpointPrivateAccess=true")


def _is_open(account: Account, network: Mapping[str, Any], groups: Sequence[str]) -> bool:
    """Whether the cluster's security groups admit these groups, or any addresses, to its port."""
    own = [network["clusterSecurityGroupId"], *network.get("securityGroupIds", ())]
    described = account.make("ec2").describe_security_groups(GroupIds=own)["SecurityGroups"]
    rules = [rule for group in described for rule in group["IpPermissions"]]
    to_port = [
        rule
        for rule in rules
        if rule["IpProtocol"] == "-1" or rule.get("FromPort", 0) <= _HTTPS <= rule.get("ToPort", -1)
    ]
    sources = {pair.get("GroupId") for rule in to_port for pair in rule.get("UserIdGroupPairs", ())}
    return any(rule.get("IpRanges") for rule in to_port) or not sources.isdisjoint(groups)


def _access(account: Account, subject: str, cluster: Mapping[str, Any], role_arn: str) -> Iterator[DoctorFinding]:
    """Check that the functions' role is in nodeheal's group in the cluster, and has nothing else there."""
    eks, name = account.make("eks"), cluster["name"]
    if cluster.get("accessConfig", {}).get("authenticationMode") == "CONFIG_MAP":
        todo = (
            f"aws eks update-cluster-config --name {name} "
            "--access-config authenticationMode=API_AND_CONFIG_MAP (there is no way back), and deploy"
        )
        yield DoctorFinding(subject, BAD, "its authentication mode is CONFIG_MAP, so access entries do not work", todo)
        return
    entry = _existing(eks.describe_access_entry, clusterName=name, principalArn=role_arn)
    if entry is None:
        detail = f"{role_arn} has no access entry"
        yield DoctorFinding(subject, BAD, detail, "run `make deploy`: the stack creates it")
        return
    given = entry["accessEntry"].get("kubernetesGroups", [])
    of_role = f"--cluster-name {name} --principal-arn {role_arn}"
    if given != [names.KUBERNETES_GROUP]:
        detail = f"the access entry of {role_arn} has the groups {some(given) or 'none'}"
        todo = f"aws eks update-access-entry {of_role} --kubernetes-groups {names.KUBERNETES_GROUP}"
        yield DoctorFinding(subject, BAD, detail, todo)
    pages = eks.get_paginator("list_associated_access_policies").paginate(clusterName=name, principalArn=role_arn)
    for policy in (policy for page in pages for policy in page["associatedAccessPolicies"]):
        detail = f"the access entry of {role_arn} has {policy['policyArn']}, more than nodeheal is to have"
        todo = f"aws eks disassociate-access-policy {of_role} --policy-arn {policy['policyArn']}"
        yield DoctorFinding(subject, BAD, detail, todo)


def _auto_mode(
    subject: str, cluster: Mapping[str, Any], instances: Sequence[Mapping[str, Any]]
) -> Iterator[DoctorFinding]:
    """Say what is left to nodeheal where EKS Auto Mode makes the nodes."""
    of_eks = [each["InstanceId"] for each in instances if each.get("Operator", {}).get("Principal") == EKS_OPERATOR]
    if of_eks or (cluster.get("computeConfig", {}).get("enabled") and not instances):
        detail = "EKS Auto Mode repairs the nodes that it makes by itself, always, and SSM does not reach them"
        todo = "have training nodes in managed node groups; what is left there: docs/eks.md, Auto Mode"
        yield DoctorFinding(subject, WARNING, f"{detail}: {some(of_eks)}" if of_eks else detail, todo)


def _node_repair(
    account: Account, subject: str, name: str, instances: Sequence[Mapping[str, Any]]
) -> Iterator[DoctorFinding]:
    """Check what else repairs the nodes; before any is known, those of every managed node group."""
    eks = account.make("eks")
    tags = [{tag["Key"]: tag["Value"] for tag in each.get("Tags", ())} for each in instances]
    groups = {of_node[NODEGROUP_TAG] for of_node in tags if NODEGROUP_TAG in of_node}
    if not instances:
        pages = eks.get_paginator("list_nodegroups").paginate(clusterName=name)
        groups = {group for page in pages for group in page["nodegroups"]}
    for group in sorted(groups):
        if reasons := reasons_repaired(eks.describe_nodegroup(clusterName=name, nodegroupName=group)["nodegroup"]):
            detail = f"EKS repairs nodes of node group {group} as well, so nodeheal keeps off them: {some(reasons)}"
            todo = (
                f"aws eks update-nodegroup-config --cluster-name {name} --nodegroup-name {group} "
                "--node-repair-config enabled=false; or NoAction for each of these reasons: docs/eks.md, Node repair"
            )
            yield DoctorFinding(subject, WARNING, detail, todo)
    of_karpenter = sum(KARPENTER_TAG in of_node for of_node in tags)
    if of_karpenter:
        detail = f"Karpenter made {counted(of_karpenter, 'node')}; whether it repairs them too stands in its Deployment"
        todo = (
            "NodeRepair must not be true in: kubectl get deployments -A -l app.kubernetes.io/name=karpenter -o yaml "
            "| grep -A1 FEATURE_GATES"
        )
        yield DoctorFinding(subject, UNKNOWN, detail, todo)


def _neuron_recovery(
    account: Account, subject: str, name: str, instances: Sequence[Mapping[str, Any]]
) -> Iterator[DoctorFinding]:
    """Check whether AWS's Neuron node-problem-detector replaces nodes, where the operator may read its DaemonSet."""
    if not any(each["InstanceType"].startswith(_NEURON_TYPES) for each in instances):
        return
    try:
        is_on = is_recovery_on(EksClusters(account.make).api(name))
    except (ApiError, NotAccepted, NotFound) as error:
        detail = f"whether AWS's Neuron node-problem-detector replaces nodes stands in its DaemonSet ({error})"
        todo = f"{SWITCH} must not be true in: kubectl get daemonset -n {NAMESPACE} {NAME} -o yaml | grep -A1 {SWITCH}"
        yield DoctorFinding(subject, UNKNOWN, detail, todo)
        return
    if is_on:
        detail = "AWS's Neuron node-problem-detector replaces nodes, without a drain, so nodeheal keeps off them"
        yield DoctorFinding(subject, WARNING, detail, SWITCH_OFF[Remediator.neuron_node_recovery])


def _instances(account: Account, machines: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    for start in range(0, len(machines), INSTANCES_IN_A_FILTER):
        asked = [{"Name": "instance-id", "Values": machines[start : start + INSTANCES_IN_A_FILTER]}]
        for page in account.make("ec2").get_paginator("describe_instances").paginate(Filters=asked):
            yield from (instance for reservation in page["Reservations"] for instance in reservation["Instances"])


def _existing(call: Callable[..., Mapping[str, Any]], **asked: str) -> Mapping[str, Any] | None:
    """Return what EKS has; None: it has none."""
    from botocore.exceptions import ClientError

    try:
        return call(**asked)
    except ClientError as error:
        if code_of(error) != "ResourceNotFoundException":
            raise
        return None
