"""Reaches EKS clusters: `DescribeCluster` says where the API server is, and a token proves the caller's role.

The token is what `aws eks get-token` makes: a presigned GetCallerIdentity of STS in this Region, with the cluster's
name among the signed headers. EKS takes it for fifteen minutes.
"""

import base64
from collections.abc import Callable
from typing import Any

from nodeheal.adapters.aws.calls import code_of, throttles_named
from nodeheal.adapters.kubernetes.api import Endpoint, KubernetesApi
from nodeheal.domain.errors import NotAccepted, NotFound

TOKEN_PREFIX = "k8s-aws-v1."
CLUSTER_HEADER = "x-k8s-aws-id"
_EXPIRES_SECONDS = 60  # required in the address; EKS takes no notice of it


class EksClusters:
    """Keeps an API for each EKS cluster that was asked for. `make` creates the client of a service."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        self._make = make
        self._apis: dict[str, KubernetesApi] = {}

    def api(self, cluster: str) -> KubernetesApi:
        """Return the API of the cluster of this name; it is asked for nothing yet."""
        if cluster not in self._apis:
            self._apis[cluster] = KubernetesApi(lambda: self.endpoint(cluster), lambda: self.token(cluster))
        return self._apis[cluster]

    def endpoint(self, cluster: str) -> Endpoint:
        """Return where its API server is. Raises NotFound, NotAccepted."""
        from botocore.exceptions import ClientError

        try:
            with throttles_named("DescribeCluster"):
                found = self._make("eks").describe_cluster(name=cluster)["cluster"]
        except ClientError as error:
            if code_of(error) != "ResourceNotFoundException":
                raise
            raise NotFound(f"EKS has no cluster {cluster} in this account and Region") from error
        if not found.get("endpoint"):
            raise NotAccepted(f"EKS cluster {cluster} is {found.get('status', 'being made')} and has no endpoint yet")
        return Endpoint(found["endpoint"], base64.b64decode(found["certificateAuthority"]["data"]).decode())

    def token(self, cluster: str) -> str:
        """Return a token that proves the caller's role to this cluster alone."""
        from botocore.signers import RequestSigner

        sts = self._make("sts")
        region = sts.meta.region_name
        signer = RequestSigner(
            sts.meta.service_model.service_id, region, "sts", "v4", sts._request_signer._credentials, sts.meta.events
        )
        request = {
            "method": "GET",
            "url": f"https://{_sts_host(region)}/?Action=GetCallerIdentity&Version=2011-06-15",
            "body": {},
            "headers": {CLUSTER_HEADER: cluster},
            "context": {},
        }
        signed = signer.generate_presigned_url(request, operation_name="", expires_in=_EXPIRES_SECONDS)
        return TOKEN_PREFIX + base64.urlsafe_b64encode(signed.encode()).rstrip(b"=").decode()


def _sts_host(region: str) -> str:
    """Return the regional host of STS. EKS accepts no other, whatever endpoint the caller itself has been given."""
    suffixes = {"cn": "amazonaws.com.cn", "eusc": "amazonaws.eu"}
    return f"sts.{region}.{suffixes.get(region.partition('-')[0], 'amazonaws.com')}"
