"""Reaches EKS clusters: `DescribeCluster` says where the API server is, and a token proves the caller's role.

The token is what `aws eks get-token` makes: a presigned GetCallerIdentity of STS in this Region, with the cluster's
name among the signed headers. EKS takes it for fifteen minutes.
"""

import base64
from collections.abc import Callable
from typing import Any

from nodeheal.adapters.aws.calls import code_of, throttles_named
from nodeheal.adapters.kubernetes.api import Endpoint, KubernetesApi
from nodeheal.adapters.kubernetes.nodes import KubernetesNodes
from nodeheal.domain.errors import NotAccepted, NotFound

TOKEN_PREFIX = "k8s-aws-v1."
CLUSTER_HEADER = "x-k8s-aws-id"
# Of the partitions that have another. EKS accepts the regional host of STS alone, whatever endpoint the caller has.
_DOMAINS = {"aws-cn": "amazonaws.com.cn", "aws-eusc": "amazonaws.eu"}
_EXPIRES_SECONDS = 60  # required in the address; EKS takes no notice of it


class EksClusters:
    """Keeps the API and the known nodes of each EKS cluster. `make` creates the client of a service."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        self._make = make
        self._apis: dict[str, KubernetesApi] = {}
        self._nodes: dict[str, KubernetesNodes] = {}

    def api(self, cluster: str) -> KubernetesApi:
        """Return the API of the cluster of this name; it is asked for nothing yet."""
        if cluster not in self._apis:
            self._apis[cluster] = KubernetesApi(lambda: self.endpoint(cluster), lambda: self.token(cluster))
        return self._apis[cluster]

    def nodes(self, cluster: str) -> KubernetesNodes:
        """Return what finds the nodes of the cluster of this name."""
        return self._nodes.setdefault(cluster, KubernetesNodes(cluster, self.api(cluster)))

    def endpoint(self, cluster: str) -> Endpoint:
        """Return where its API server is. Raises NotFound, NotAccepted."""
        from botocore.exceptions import ClientError

        try:
            with throttles_named("DescribeCluster"):
                description = self._make("eks").describe_cluster(name=cluster)["cluster"]
        except ClientError as error:
            if code_of(error) != "ResourceNotFoundException":
                raise
            raise NotFound(f"EKS has no cluster {cluster} in this account and Region") from error
        if not description.get("endpoint"):
            status = description.get("status", "being made")
            raise NotAccepted(f"EKS cluster {cluster} is {status} and has no endpoint yet")
        return Endpoint(description["endpoint"], base64.b64decode(description["certificateAuthority"]["data"]).decode())

    def token(self, cluster: str) -> str:
        """Return a token that proves the caller's role to this cluster alone."""
        from botocore.signers import RequestSigner

        sts = self._make("sts")
        region = sts.meta.region_name
        host = f"sts.{region}.{_DOMAINS.get(sts.meta.partition, 'amazonaws.com')}"
        signer = RequestSigner(
            sts.meta.service_model.service_id, region, "sts", "v4", sts._request_signer._credentials, sts.meta.events
        )
        request = {
            "method": "GET",
            "url": f"https://{host}/?Action=GetCallerIdentity&Version=2011-06-15",
            "body": {},
            "headers": {CLUSTER_HEADER: cluster},
            "context": {},
        }
        signed = signer.generate_presigned_url(request, operation_name="", expires_in=_EXPIRES_SECONDS)
        return TOKEN_PREFIX + base64.urlsafe_b64encode(signed.encode()).rstrip(b"=").decode()
