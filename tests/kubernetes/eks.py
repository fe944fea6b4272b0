"""EKS as the tests have it: DescribeCluster, STS that signs, and access entries, before the real API server.

STS here does not verify a signature: it knows a caller by the access key's id.
"""

import base64
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

from botocore.session import Session

from nodeheal.adapters.kubernetes.access import EksClusters
from nodeheal.contract import names
from nodeheal.contract.vocabulary import Provider, SchedulerKind
from nodeheal.domain.fleet.node import Node
from sandbox.kubernetes.authenticator import Authenticator
from sandbox.kubernetes.control_plane import ControlPlane
from stacks.settings import REPOSITORY
from tests.support.builders import node

NAME, REGION = "training", "eu-central-1"
MANIFEST = REPOSITORY / "charts" / "nodeheal.yaml"
FUNCTIONS, OPERATOR, STRANGER = "AKIAFUNCTIONS", "AKIAOPERATOR", "AKIASTRANGER"
OPERATORS = "sre"  # the group that the operator's access entry has: a test gives it its rights
_CALLERS = (FUNCTIONS, OPERATOR, STRANGER)
_ROLES = {name: f"arn:aws:sts::111122223333:assumed-role/{name.lower()}/function" for name in _CALLERS}


def authenticator() -> Authenticator:
    """The functions' role has an access entry with nodeheal's group, an operator's another group, a stranger's none."""
    entries = {_ROLES[FUNCTIONS]: [names.KUBERNETES_GROUP], _ROLES[OPERATOR]: [OPERATORS]}
    return Authenticator(NAME, f"sts.{REGION}.amazonaws.com", _identify, entries)


def clusters(plane: ControlPlane, key: str = FUNCTIONS) -> EksClusters:
    """The clusters as a caller with this access key reaches them."""
    session = Session()
    session.set_credentials(key, "secret", "token")
    sts = session.create_client("sts", region_name=REGION)
    authority = base64.b64encode(plane.authority.files.certificate.read_bytes()).decode()
    cluster = {"endpoint": plane.server, "certificateAuthority": {"data": authority}, "status": "ACTIVE"}
    eks = SimpleNamespace(describe_cluster=lambda name: {"cluster": cluster})
    clients: dict[str, Any] = {"sts": sts, "eks": eks}
    return EksClusters(lambda service: clients[service])


def record(instance_id: str, **changes: Any) -> Node:
    """nodeheal's record of a node of this cluster."""
    return node(instance_id, scheduler=SchedulerKind.KUBERNETES, cluster=NAME, provider=Provider.ec2, **changes)


def _identify(address: str, headers: Mapping[str, str]) -> str | None:
    credential = parse_qs(urlsplit(address).query)["X-Amz-Credential"][0]
    return _ROLES.get(credential.partition("/")[0]) if headers else None
