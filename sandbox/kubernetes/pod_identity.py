"""EKS Pod Identity for one cluster: what the admission gives to pods, and the credentials for a pod's token.

As in EKS User Guide, "Learn how EKS Pod Identity grants pods access to AWS services": a pod whose service account has
an association gets a token for the audience pods.eks.amazonaws.com and the address of an agent on its node. The agent
has EKS verify the token, and answers with a session of the association's role, whose tags name the cluster and the pod.
EKS's webhook is a mutating admission policy here, and the agent of all nodes is an address of the embedded cloud.
"""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from nodeheal.contract import names
from sandbox.aws_emulator import AwsEmulator
from sandbox.aws_json import AwsError, Json
from sandbox.iam import ACCOUNT, REGION, SESSION_SECONDS, Credentials
from sandbox.kubernetes.api import Api, ApiError

PREFIX = "/_pod-identity/"  # followed by the cluster
AUDIENCE = "pods.eks.amazonaws.com"
_FOLDER, _TOKEN = "/var/run/secrets/pods.eks.amazonaws.com/serviceaccount", "eks-pod-identity-token"
_VOLUME = {"name": "empty", "emptyDir": {}}
_CONTAINER = {
    "name": "main",
    "image": "none",
    "env": [{"name": "A", "value": "a"}],
    "volumeMounts": [{"name": "empty", "mountPath": "/empty"}],
}
_USER = "system:serviceaccount:"
_EXTRA = "authentication.kubernetes.io/"


def admission(associations: Sequence[Json], cluster: str, endpoint_url: str) -> list[dict[str, Any]]:
    """Return the objects that give the cluster's pods, at their creation, what EKS gives those with an association."""
    accounts = [f"{each['namespace']}/{each['serviceAccount']}" for each in associations]
    if not accounts:
        return []
    variables = {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{endpoint_url}{PREFIX}{cluster}",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": f"{_FOLDER}/{_TOKEN}",
    }
    added = [
        ("/spec/volumes/-", f'Object.spec.volumes{{name: "{_TOKEN}", projected: {_projected()}}}'),
        (
            "/spec/containers/0/volumeMounts/-",
            f'Object.spec.containers.volumeMounts{{name: "{_TOKEN}", mountPath: "{_FOLDER}", readOnly: true}}',
        ),
        *(
            ("/spec/containers/0/env/-", f'Object.spec.containers.env{{name: "{name}", value: "{value}"}}')
            for name, value in variables.items()
        ),
    ]
    patches = ", ".join(f'JSONPatch{{op: "add", path: "{path}", value: {value}}}' for path, value in added)
    named = {"metadata": {"name": "eks-pod-identity"}, "apiVersion": "admissionregistration.k8s.io/v1"}
    account = "object.metadata.namespace + '/' + object.spec.?serviceAccountName.orValue('default')"
    spec = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
            ]
        },
        "matchConditions": [{"name": "associated", "expression": f"{account} in {accounts}"}],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": f"[{patches}]"}}],
    }
    binding = {"policyName": "eks-pod-identity"}
    return [
        {**named, "kind": "MutatingAdmissionPolicy", "spec": spec},
        {**named, "kind": "MutatingAdmissionPolicyBinding", "spec": binding},
    ]


def is_admitted(api: Api) -> bool:
    """Whether the API server applies the admission: it takes a second or two to notice one."""
    pod = {"serviceAccountName": names.KUBERNETES_AGENT, "containers": [_CONTAINER], "volumes": [_VOLUME]}
    path = f"/api/v1/namespaces/{names.KUBERNETES_NAMESPACE}/pods?dryRun=All"
    try:
        made = api.create(path, {"metadata": {"name": "admission"}, "spec": pod})
    except ApiError:  # the service account is new as well
        return False
    return any(volume["name"] == _TOKEN for volume in made["spec"]["volumes"])


def credentials(emulator: AwsEmulator, cluster: str, api: Api, token: str) -> Json:
    """Return what the agent answers to this token: AssumeRoleForPodIdentity of EKS Auth. Raises AwsError."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
    asked = {**review, "spec": {"token": token, "audiences": [AUDIENCE]}}
    status = api.create("/apis/authentication.k8s.io/v1/tokenreviews", asked)["status"]
    user = status.get("user", {})
    if not status.get("authenticated") or not str(user.get("username", "")).startswith(_USER):
        raise AwsError("InvalidTokenException", "the token is not one of this cluster's for Pod Identity", status=400)
    namespace, _, account = user["username"].removeprefix(_USER).partition(":")
    extra = {key.removeprefix(_EXTRA): values[0] for key, values in user.get("extra", {}).items()}
    for association in emulator.pod_identity_associations(cluster):
        if (association["namespace"], association["serviceAccount"]) == (namespace, account):
            tags = {
                "eks-cluster-arn": f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/{cluster}",
                "eks-cluster-name": cluster,
                "kubernetes-namespace": namespace,
                "kubernetes-service-account": account,
                "kubernetes-pod-name": extra["pod-name"],
                "kubernetes-pod-uid": extra["pod-uid"],
            }
            session = f"eks-{cluster}-{extra['pod-name']}"[:64]
            return _answer(emulator.assume_role(AUDIENCE, association["roleArn"], session, tags))
    raise AwsError("ResourceNotFoundException", f"{namespace}/{account} has no association", status=404)


def _answer(begun: Credentials) -> Json:
    ends_at = datetime.fromtimestamp(time.time() + SESSION_SECONDS, UTC)
    return {
        "AccessKeyId": begun.access_key,
        "SecretAccessKey": begun.secret_key,
        "Token": begun.session_token,
        "AccountId": ACCOUNT,
        "Expiration": ends_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _projected() -> str:
    path = "Object.spec.volumes.projected"
    token = f'{path}.sources.serviceAccountToken{{audience: "{AUDIENCE}", expirationSeconds: 86400, path: "{_TOKEN}"}}'
    return f"{path}{{sources: [{path}.sources{{serviceAccountToken: {token}}}]}}"
