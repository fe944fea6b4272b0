"""What `nodeheal doctor` makes of EKS clusters, by answers that have the shapes of EKS and EC2."""

from collections.abc import Iterator
from typing import Any

import pytest

from nodeheal.adapters.aws.account import Account
from nodeheal.adapters.aws.ec2_remediators import ACCELERATOR_REASONS
from nodeheal.adapters.aws.finding import BAD, GOOD, UNKNOWN, WARNING, DoctorFinding
from nodeheal.adapters.kubernetes import account_look
from nodeheal.adapters.kubernetes.account_look import kubernetes_look
from nodeheal.adapters.kubernetes.api import ApiError
from nodeheal.adapters.memory.ports import memory_ports
from nodeheal.contract import names
from nodeheal.contract.vocabulary import NodeState, Provider, SchedulerKind
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.node import Node
from tests.support.builders import ACT, FrozenClock, node
from tests.support.machines import Stubbed, instance, overrides

NAME, ROLE = "training", "arn:aws:iam::111122223333:role/nodeheal-controllers-eu-central-1"
IN_VPC = {names.FUNCTION_GROUPS_OUTPUT: "sg-functions"}
HERE: dict[str, Any] = {
    "resourcesVpcConfig": {
        "vpcId": "vpc-1",
        "clusterSecurityGroupId": "sg-cluster",
        "endpointPublicAccess": True,
        "endpointPrivateAccess": False,
        "publicAccessCidrs": ["0.0.0.0/0"],
    },
    "accessConfig": {"authenticationMode": "API_AND_CONFIG_MAP"},
}
ON_EKS = node("i-1", provider=Provider.ec2, scheduler=SchedulerKind.KUBERNETES, cluster=NAME)
OF_GROUP = instance(tags={"eks:nodegroup-name": "gpus", "eks:cluster-name": NAME})


@pytest.fixture
def eks() -> Iterator[Stubbed]:
    made = Stubbed()
    yield made
    for stub in made.stubs.values():
        stub.assert_no_pending_responses()


def has(aws: Stubbed, **changes: Any) -> Stubbed:
    """A cluster that the functions reach from anywhere, with these changes."""
    network = {**HERE["resourcesVpcConfig"], **changes.pop("network", {})}
    cluster = {"name": NAME, "status": "ACTIVE", **HERE, "resourcesVpcConfig": network, **changes}
    return aws.answers("eks", "describe_cluster", {"cluster": cluster}, {"name": NAME})


def admits(aws: Stubbed, groups: tuple[str, ...] = (names.KUBERNETES_GROUP,), *policies: str) -> Stubbed:
    """Its access entry for the functions' role."""
    asked = {"clusterName": NAME, "principalArn": ROLE}
    aws.answers("eks", "describe_access_entry", {"accessEntry": {"kubernetesGroups": list(groups)}}, asked)
    associated = [{"policyArn": policy} for policy in policies]
    return aws.answers("eks", "list_associated_access_policies", {"associatedAccessPolicies": associated}, asked)


def without_groups(aws: Stubbed) -> Stubbed:
    """No node is on record, and the cluster has no managed node group."""
    return aws.answers("eks", "list_nodegroups", {"nodegroups": []}, {"clusterName": NAME})


def findings(aws: Stubbed, *nodes: Node, named: str = NAME, **outputs: str) -> list[DoctorFinding]:
    """What is said where these nodes are, and the settings name these clusters."""
    ports = memory_ports(FrozenClock())
    for each in nodes:
        ports.nodes.save(each)
    account = Account(aws, lambda: ports, ACT.model_dump_json, {})
    account.outputs.update({names.EKS_CLUSTERS_OUTPUT: named, **outputs})
    return list(kubernetes_look(lambda: ROLE).findings(account))


def only(found: list[DoctorFinding]) -> DoctorFinding:
    [finding] = found
    assert finding.what == f"EKS cluster {NAME}"
    return finding


def test_a_cluster_that_is_open_to_the_functions_is_well(eks: Stubbed) -> None:
    assert only(findings(without_groups(admits(has(eks))))).state == GOOD


def test_where_neither_settings_nor_nodes_name_a_cluster_eks_is_not_asked(eks: Stubbed) -> None:
    retired = node("i-1", scheduler=SchedulerKind.KUBERNETES, cluster=NAME, state=NodeState.RETIRED)

    assert findings(eks, node(), retired, named="") == []


@pytest.mark.parametrize("named", [NAME, ""])
def test_a_cluster_that_is_not_there_is_named(eks: Stubbed, named: str) -> None:
    eks.refuses("eks", "describe_cluster", "ResourceNotFoundException", 404)

    assert only(findings(eks, ON_EKS, named=named)).detail.startswith("EKS has no cluster of this name")


def test_a_cluster_of_nodes_that_the_settings_do_not_name_cannot_be_asked(eks: Stubbed) -> None:
    finding = only(findings(has(eks), ON_EKS, named=""))

    assert (finding.state, finding.todo) == (BAD, "name it under eks_clusters in cdk.json, and deploy")


def test_a_cluster_that_is_being_made_is_looked_at_no_further(eks: Stubbed) -> None:
    assert only(findings(has(eks, status="CREATING"))).detail == "it is CREATING"


NARROW = {"publicAccessCidrs": ["198.51.100.0/24"]}
PRIVATE = {"endpointPublicAccess": False, "endpointPrivateAccess": True, "publicAccessCidrs": []}
UPDATE = f"aws eks update-cluster-config --name {NAME} --resources-vpc-config"


@pytest.mark.parametrize(
    ("network", "outputs", "state", "said"),
    [
        (NARROW, {}, BAD, f"{UPDATE} publicAccessCidrs=0.0.0.0/0"),
        (PRIVATE, {}, BAD, f"{UPDATE} endpointPublicAccess=true"),
        ({**NARROW, "endpointPrivateAccess": True}, {}, BAD, f"{UPDATE} publicAccessCidrs=0.0.0.0/0"),
        (NARROW, IN_VPC, WARNING, f"{UPDATE} endpointPrivateAccess=true"),
        ({}, IN_VPC, GOOD, ""),
    ],
)
def test_an_endpoint_that_does_not_admit_the_functions_is_named(
    eks: Stubbed, network: dict[str, Any], outputs: dict[str, str], state: str, said: str
) -> None:
    finding = only(findings(without_groups(admits(has(eks, network=network))), **outputs))

    assert (finding.state, said in finding.todo) == (state, True)


def rule(**source: Any) -> dict[str, Any]:
    return {"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, **source}


FROM_FUNCTIONS = {"UserIdGroupPairs": [{"GroupId": "sg-functions"}]}


@pytest.mark.parametrize(
    ("rules", "is_open"),
    [
        ([rule(**FROM_FUNCTIONS)], True),
        ([{"IpProtocol": "-1", **FROM_FUNCTIONS}], True),
        ([rule(IpRanges=[{"CidrIp": "10.0.0.0/8"}])], True),
        ([{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": "sg-cluster"}]}], False),
        ([{**rule(**FROM_FUNCTIONS), "FromPort": 80, "ToPort": 80}], False),
        ([], False),
    ],
)
def test_a_private_endpoint_must_admit_the_functions_security_group(
    eks: Stubbed, rules: list[dict[str, Any]], is_open: bool
) -> None:
    without_groups(admits(has(eks, network=PRIVATE)))
    eks.answers("ec2", "describe_security_groups", {"SecurityGroups": [{"IpPermissions": rules}]})

    finding = only(findings(eks, **IN_VPC))

    todo = "--group-id sg-cluster --protocol tcp --port 443 --source-group sg-functions"
    assert (finding.state, todo in finding.todo) == ((GOOD, False) if is_open else (BAD, True))


def test_access_entries_need_an_authentication_mode_that_reads_them(eks: Stubbed) -> None:
    without_groups(has(eks, accessConfig={"authenticationMode": "CONFIG_MAP"}))

    finding = only(findings(eks))

    assert (finding.state, "authenticationMode=API_AND_CONFIG_MAP" in finding.todo) == (BAD, True)


def test_without_an_access_entry_the_functions_are_nobody(eks: Stubbed) -> None:
    has(eks).refuses("eks", "describe_access_entry", "ResourceNotFoundException", 404)

    assert only(findings(without_groups(eks))).detail == f"{ROLE} has no access entry"


@pytest.mark.parametrize("groups", [(), (names.KUBERNETES_GROUP, "system:masters"), ("admins",)])
def test_the_role_is_in_nodeheals_group_alone(eks: Stubbed, groups: tuple[str, ...]) -> None:
    finding = only(findings(without_groups(admits(has(eks), groups))))

    assert finding.todo == (
        f"aws eks update-access-entry --cluster-name {NAME} --principal-arn {ROLE} "
        "--kubernetes-groups nodeheal:control-plane"
    )


def test_an_access_policy_beside_the_group_is_too_much(eks: Stubbed) -> None:
    policy = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"

    finding = only(findings(without_groups(admits(has(eks), (names.KUBERNETES_GROUP,), policy))))

    assert (finding.state, finding.todo.endswith(f"--policy-arn {policy}")) == (BAD, True)


@pytest.mark.parametrize(
    ("config", "state"),
    [
        ({"enabled": True}, WARNING),
        (overrides(*ACCELERATOR_REASONS), GOOD),
        ({"enabled": False}, GOOD),
    ],
    ids=["on", "no-action", "off"],
)
@pytest.mark.parametrize("is_on_record", [True, False])
def test_node_repair_of_eks_is_named_for_groups_of_nodes_or_before_there_are_any_for_all(
    eks: Stubbed, config: dict[str, Any], state: str, is_on_record: bool
) -> None:
    admits(has(eks))
    if is_on_record:
        eks.answers("ec2", "describe_instances", OF_GROUP)
    else:
        eks.answers("eks", "list_nodegroups", {"nodegroups": ["gpus"]}, {"clusterName": NAME})
    asked = {"clusterName": NAME, "nodegroupName": "gpus"}
    eks.answers("eks", "describe_nodegroup", {"nodegroup": {"nodeRepairConfig": config}}, asked)

    finding = only(findings(eks, *([ON_EKS] if is_on_record else [])))

    todo = f"--cluster-name {NAME} --nodegroup-name gpus --node-repair-config enabled=false"
    assert (finding.state, todo in finding.todo) == (state, state == WARNING)


@pytest.mark.parametrize("has_nodes", [True, False])
def test_what_eks_auto_mode_makes_is_left_to_it(eks: Stubbed, has_nodes: bool) -> None:
    admits(has(eks, computeConfig={"enabled": True}))
    if has_nodes:
        eks.answers("ec2", "describe_instances", instance(Operator={"Managed": True, "Principal": "eks.amazonaws.com"}))
    else:
        without_groups(eks)

    finding = only(findings(eks, *([ON_EKS] if has_nodes else [])))

    assert (finding.state, finding.detail.endswith(": i-1")) == (WARNING, has_nodes)


def test_auto_mode_beside_managed_node_groups_is_no_problem(eks: Stubbed) -> None:
    admits(has(eks, computeConfig={"enabled": True})).answers("ec2", "describe_instances", OF_GROUP)
    eks.answers("eks", "describe_nodegroup", {"nodegroup": {}})

    assert only(findings(eks, ON_EKS)).state == GOOD


def test_whether_karpenter_repairs_its_nodes_cannot_be_told(eks: Stubbed) -> None:
    made = instance(tags={"karpenter.sh/nodepool": "gpus"})
    admits(has(eks)).answers("ec2", "describe_instances", made)

    found = findings(eks, ON_EKS)

    assert [(one.state, "FEATURE_GATES" in one.todo) for one in found] == [(UNKNOWN, True), (GOOD, False)]


@pytest.mark.parametrize("kind", ["trn2.48xlarge", "inf2.48xlarge"])
@pytest.mark.parametrize(
    ("answer", "state", "todo"),
    [
        (True, WARNING, "npd.nodeRecovery.enabled=false"),
        (ApiError(403, "Forbidden", "ada may not"), UNKNOWN, "kubectl get daemonset -n neuron-healthcheck-system"),
        (NotAccepted("no answer"), UNKNOWN, "kubectl get daemonset -n neuron-healthcheck-system"),
        (False, GOOD, ""),
    ],
)
def test_the_recovery_of_the_neuron_chart_is_read_as_the_operator_or_asked_for(
    eks: Stubbed, monkeypatch: pytest.MonkeyPatch, kind: str, answer: bool | Exception, state: str, todo: str
) -> None:
    def read(_: object) -> bool:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(account_look, "is_recovery_on", read)
    admits(has(eks)).answers("ec2", "describe_instances", instance(InstanceType=kind))

    found = findings(eks, ON_EKS)[0]

    assert (found.state, todo in found.todo) == (state, True)
