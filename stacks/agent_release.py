"""Deploys the agent to nodes: the wheelhouse as an asset, the permission to read it, and the document that installs
from it.
"""

import base64
import json
import re
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
# A bad release stops after these nodes; the others keep their present agent.
NODES_AT_ONCE = 10
FAILED_NODES = 3


class AgentRelease(Construct):
    """Everything with which a node installs this version of the agent."""

    def __init__(self, scope: Construct, settings: Settings, node_role: iam.Role, ingest: IDependable) -> None:
        """`ingest`: the function that reads the events of agents. It is upgraded before the agents are."""
        super().__init__(scope, "AgentRelease")
        built = wheelhouse.build(settings)
        asset = s3_assets.Asset(self, "Wheelhouse", path=str(built.archive))
        self._download = self._download_policy(asset)
        node_role.add_managed_policy(self._download)
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
        for pool, config in settings.agent_pools.items():
            self._install_on(pool, (REPOSITORY / config).read_bytes()).node.add_dependency(ingest)

    def outputs(self) -> dict[str, str]:
        """Return the stack's outputs for people, by name."""
        return {"AgentDownloadPolicyArn": self._download.managed_policy_arn}

    def _download_policy(self, asset: s3_assets.Asset) -> iam.ManagedPolicy:
        """Create a managed policy, so that roles of hybrid nodes outside the stack can have it, too."""
        place = f"arn:{cdk.Aws.PARTITION}:s3:::{asset.s3_bucket_name}/{asset.s3_object_key}"
        return iam.ManagedPolicy(
            self,
            "Download",
            description="What a node needs to install the agent of nodeheal",
            statements=[DOWNLOAD.statement({"wheelhouse": place})],
        )

    def _install_on(self, pool: str, config: bytes) -> ssm.CfnAssociation:
        """Create an association for the nodes of a pool. It runs when the version changes, and on nodes that get the
        tag.
        """
        association = ssm.CfnAssociation(
            self,
            f"Install-{pool}",
            association_name=f"{names.INSTALL_DOCUMENT}-{pool}",
            name=names.INSTALL_DOCUMENT,
            parameters={
                "Action": ["install"],
                "Version": [__version__],
                "Config": [base64.b64encode(config).decode("ascii")],
            },
            targets=[ssm.CfnAssociation.TargetProperty(key=f"tag:{names.AGENT_POOL_TAG}", values=[pool])],
            max_concurrency=str(NODES_AT_ONCE),
            max_errors=str(FAILED_NODES),
            compliance_severity="HIGH",
        )
        association.add_dependency(self._document)
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
