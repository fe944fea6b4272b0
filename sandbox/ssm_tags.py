"""Implements the tags of managed nodes: permission to set them decides what SSM permits on a node."""

from collections.abc import Mapping

from sandbox.aws_json import AwsError, Caller, Json
from sandbox.iam import ACCOUNT, REGION, resource_tags
from sandbox.node import Node


class NodeTags:
    """SSM's operations on tags, of managed nodes only."""

    def __init__(self, nodes: Mapping[str, Node], tags: Mapping[str, dict[str, str]]) -> None:
        self._nodes = nodes
        self._tags = tags

    def add_tags_to_resource(self, caller: Caller, request: Json) -> Json:
        """AddTagsToResource."""
        name, tags = self._of(request)
        added = {tag["Key"]: tag["Value"] for tag in request["Tags"]}
        asked = _known(tags) | resource_tags(added, "aws:RequestTag/") | {"aws:TagKeys": list(added)}
        caller.must_be_allowed("ssm:AddTagsToResource", node_arn(name), asked)
        tags.update(added)
        return {}

    def remove_tags_from_resource(self, caller: Caller, request: Json) -> Json:
        """RemoveTagsFromResource."""
        name, tags = self._of(request)
        asked = _known(tags) | {"aws:TagKeys": request["TagKeys"]}
        caller.must_be_allowed("ssm:RemoveTagsFromResource", node_arn(name), asked)
        for key in request["TagKeys"]:
            tags.pop(key, None)
        return {}

    def list_tags_for_resource(self, caller: Caller, request: Json) -> Json:
        """ListTagsForResource."""
        name, tags = self._of(request)
        caller.must_be_allowed("ssm:ListTagsForResource", node_arn(name), _known(tags))
        return {"TagList": [{"Key": key, "Value": value} for key, value in tags.items()]}

    def _of(self, request: Json) -> tuple[str, dict[str, str]]:
        name = request["ResourceId"]
        if request["ResourceType"] != "ManagedInstance" or name not in self._nodes:
            raise AwsError("InvalidResourceId", f"{request['ResourceType']} {name}")
        return name, self._tags[name]


def node_arn(node_id: str) -> str:
    """Return a node's ARN for IAM: EC2's own instances have EC2's ARN."""
    service, kind = ("ssm", "managed-instance") if node_id.startswith("mi-") else ("ec2", "instance")
    return f"arn:aws:{service}:{REGION}:{ACCOUNT}:{kind}/{node_id}"


def _known(tags: Mapping[str, str]) -> dict[str, str | list[str]]:
    return resource_tags(tags) | resource_tags(tags, "ssm:resourceTag/")
