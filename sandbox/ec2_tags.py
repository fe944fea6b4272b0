"""Implements EC2's operations on the tags of instances: permission to set them decides what may be done with an
instance.
"""

from sandbox.aws_json import Caller, Json
from sandbox.ec2_state import Ec2State, arn, tags_from_list
from sandbox.iam import resource_tags


class Ec2Tags:
    """CreateTags and DeleteTags, of instances only."""

    def __init__(self, state: Ec2State) -> None:
        self._state = state

    def create_tags(self, caller: Caller, request: Json) -> Json:
        """CreateTags, of instances."""
        added = tags_from_list(request["Tags"])
        for instance in map(self._state.instance, request["Resources"]):
            asked = (
                resource_tags(instance.tags) | resource_tags(added, "aws:RequestTag/") | {"aws:TagKeys": list(added)}
            )
            caller.must_be_allowed("ec2:CreateTags", arn("instance", instance.instance_id), asked)
            instance.tags.update(added)
        return {}

    def delete_tags(self, caller: Caller, request: Json) -> Json:
        """DeleteTags, of instances."""
        keys = [tag["Key"] for tag in request["Tags"]]
        for instance in map(self._state.instance, request["Resources"]):
            asked = resource_tags(instance.tags) | {"aws:TagKeys": keys}
            caller.must_be_allowed("ec2:DeleteTags", arn("instance", instance.instance_id), asked)
            for key in keys:
                instance.tags.pop(key, None)
        return {}
