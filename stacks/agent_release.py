"""Deploys the agent to nodes: the wheelhouse as an asset, the permission to read it, and the document that installs
from it.
"""

import base64
import json
import re
from collections.abc import Sequence
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as s3_assets
from aws_cdk import aws_ssm as ssm
from constructs import Construct, IDependable

from nodeheal import __version__
from nodeheal.contract import names
from stacks import wheelhouse
from stacks.permission import Permission
from stacks.settings import REPOSITORY, Settings

DOCUMENT = REPOSITORY / "packaging" / "ssm" / "install-agent.json"
# The program that downloads the wheelhouse, each module after those that it needs.
FETCHER = ("sigv4", "profile", "fetch_wheelhouse")
DOWNLOAD = Permission(
    "download the wheelhouse of the agent, which is one object; nothing else of the bucket can be read or listed",
    ("s3:GetObject",),
    ("{wheelhouse}",),
)
DECRYPT = Permission(
    "download the wheelhouse from a bucket that is encrypted with a key of the operator's; only through S3",
    ("kms:Decrypt",),
    ("{staging_key}",),
    {"StringEquals": {"kms:ViaService": "{s3_service}"}},
)
NO_KEY = "none"  # an output may not be empty
# Of the pool's nodes. A bad release stops there, and the others keep their present agent until the next day.
NODES_AT_ONCE = "10%"
FAILED_NODES = "10%"
# A run stops at FAILED_NODES, and passes over nodes that come while it is at work. The next one makes up for both.
EVERY = "rate(1 day)"
CANARY_SECONDS = 1_800  # for which CloudFormation waits for the canaries, before it goes on to the pool


class AgentRelease(Construct):
    """Everything with which a node installs this version of the agent."""

    def __init__(
        self, scope: Construct, settings: Settings, node_roles: Sequence[iam.Role], ingest: IDependable
    ) -> None:
        """`ingest`: the function that reads the events of agents. It is upgraded before the agents are."""
        super().__init__(scope, "AgentRelease")
        built = wheelhouse.build(settings)
        asset = s3_assets.Asset(self, "Wheelhouse", path=str(built.archive))
        self._download = self._download_policy(asset, settings)
        for role in node_roles:
            role.add_managed_policy(self._download)
        self._bucket, self._key = asset.s3_bucket_name, settings.staging_key
        places = {
            "BUCKET": asset.s3_bucket_name,
            "KEY": asset.s3_object_key,
            "REGION": cdk.Aws.REGION,
            "DOMAIN": cdk.Aws.URL_SUFFIX,
            "SHA256": built.sha256,
            "FETCHER": fetcher(),
        }
        self._document = ssm.CfnDocument(
            self,
            "InstallAgentDocument",
            name=names.INSTALL_DOCUMENT,
            document_type="Command",
            document_format="JSON",
            content=document(places),
            update_method="NewVersion",
            target_type="/",
        )
        for pool, path in settings.agent_pools.items():
            config = (REPOSITORY / path).read_bytes()
            on_pool = self._install_on(pool, config, names.AGENT_POOL_TAG, ingest)
            if pool in settings.agent_canaries:
                canaries = self._install_on(pool, config, names.AGENT_CANARY_TAG, ingest, CANARY_SECONDS)
                on_pool.node.add_dependency(canaries)

    def outputs(self) -> dict[str, str]:
        """Return the stack's outputs for people, by name."""
        return {
            "AgentDownloadPolicyArn": self._download.managed_policy_arn,
            "AgentBucketName": self._bucket,
            "AgentBucketKeyArn": self._key or NO_KEY,
        }

    def _download_policy(self, asset: s3_assets.Asset, settings: Settings) -> iam.ManagedPolicy:
        """Create a managed policy, so that roles of hybrid nodes outside the stack can have it, too."""
        place = f"arn:{cdk.Aws.PARTITION}:s3:::{asset.s3_bucket_name}/{asset.s3_object_key}"
        s3_service = f"s3.{cdk.Aws.REGION}.{cdk.Aws.URL_SUFFIX}"
        return iam.ManagedPolicy(
            self,
            "Download",
            description="What a node needs to install the agent of nodeheal",
            statements=[
                DOWNLOAD.statement({"wheelhouse": place}),
                *(
                    [DECRYPT.statement({"staging_key": settings.staging_key, "s3_service": s3_service})]
                    if settings.staging_key
                    else []
                ),
            ],
        )

    def _install_on(
        self, pool: str, config: bytes, tag: str, ingest: IDependable, wait_seconds: int | None = None
    ) -> ssm.CfnAssociation:
        """Create an association for the nodes with this tag. It runs when the version changes, on nodes that get the
        tag, and once a day. `wait_seconds`: for so long CloudFormation waits until it has succeeded.
        """
        kind = "canary-" if tag == names.AGENT_CANARY_TAG else ""
        association = ssm.CfnAssociation(
            self,
            f"Install-{kind}{pool}",
            association_name=f"{names.INSTALL_DOCUMENT}-{kind}{pool}",
            name=names.INSTALL_DOCUMENT,
            parameters={
                "Action": ["install"],
                "Version": [__version__],
                "Config": [base64.b64encode(config).decode("ascii")],
            },
            targets=[ssm.CfnAssociation.TargetProperty(key=f"tag:{tag}", values=[pool])],
            schedule_expression=EVERY,
            max_concurrency=NODES_AT_ONCE,
            max_errors=FAILED_NODES,
            compliance_severity="HIGH",
            wait_for_success_timeout_seconds=wait_seconds,
        )
        # A node that runs it must be able to read the document and the wheelhouse, and ingest to read its events.
        association.node.add_dependency(self._document, self._download, ingest)
        return association


def document(places: dict[str, str]) -> dict[str, Any]:
    """Return the content of the document, with each @PLACE@ of its script filled in."""
    content: dict[str, Any] = json.loads(DOCUMENT.read_text(encoding="utf-8"))
    inputs = content["mainSteps"][0]["inputs"]
    script = "\n".join(inputs["runCommand"])
    for place, value in places.items():
        script = script.replace(f"@{place}@", value)
    inputs["runCommand"] = script.split("\n")
    return content


def fetcher() -> str:
    """Join the agent's own modules into one Python program."""
    texts = ((REPOSITORY / "nodeheal" / "agent" / f"{module}.py").read_text(encoding="utf-8") for module in FETCHER)
    return re.sub(r"(?m)^from nodeheal\..*\n", "", "\n".join(texts)).rstrip("\n")
