"""Controls EC2 of the sandbox for the demo and the tests: templates, groups, machines, and misbehaviour."""

import base64
import secrets
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from nodeheal.contract import names

Json = dict[str, Any]

# What docs/ec2.md requires of a launch template.
USER_DATA = base64.b64encode(
    b"""#!/bin/sh
cat >>/etc/ecs/ecs.config <<END
ECS_CLUSTER=training
ECS_ENABLE_GPU_SUPPORT=true
ECS_CONTAINER_INSTANCE_PROPAGATE_TAGS_FROM=ec2_instance
END
"""
).decode()


class MachineOrders:
    """The part of a Sandbox for EC2."""

    cluster: str
    outputs: dict[str, str]
    client: Callable[[str], Any]

    @abstractmethod
    def _call(self, verb: str, request: Json) -> Json:
        """Call the emulator's own interface."""

    def add_template(
        self,
        pool: str = "demo",
        gpus: int = 2,
        *,
        data: Json | None = None,
        tags: dict[str, str] | None = None,
        agent: list[str] | None = None,
    ) -> str:
        """Create a launch template whose instances are nodes of this pool; returns its id. `data`: LaunchTemplateData,
        as in EC2.

        `tags` and `agent` as in add_node; the tags are the template's and its nodes'.
        """
        managed = {names.MANAGED_TAG: names.MANAGED_TAG_VALUE}
        request = {
            "name": f"{pool}-{secrets.token_hex(3)}",
            "data": {"InstanceType": "p5.48xlarge", "UserData": USER_DATA, **(data or {})},
            "pool": pool,
            "gpus": gpus,
            "cluster": self.cluster,
            "role_arn": self.outputs.get("NodeRoleArn"),
            "tags": managed if tags is None else tags,
            "agent": agent,
        }
        return str(self._call("add_template", request)["template_id"])

    def add_group(self, name: str, template_id: str, size: int, *, tags: dict[str, str] | None = None) -> list[str]:
        """Create an Auto Scaling group that keeps `size` nodes of a template; returns their ids. They boot in the
        background.
        """
        managed = {names.MANAGED_TAG: names.MANAGED_TAG_VALUE}
        request = {"name": name, "template_id": template_id, "size": size, "tags": managed if tags is None else tags}
        made: list[str] = self._call("add_group", request)["members"]
        return made

    def add_machine(self, template_id: str, *, tags: dict[str, str] | None = None) -> str:
        """Create a single EC2 instance from a template; returns its id. It boots in the background."""
        managed = {names.MANAGED_TAG: names.MANAGED_TAG_VALUE}
        listed = [{"Key": key, "Value": value} for key, value in (managed if tags is None else tags).items()]
        made = self.client("ec2").run_instances(
            LaunchTemplate={"LaunchTemplateId": template_id},
            MinCount=1,
            MaxCount=1,
            **({"TagSpecifications": [{"ResourceType": "instance", "Tags": listed}]} if listed else {}),
        )
        return str(made["Instances"][0]["InstanceId"])

    def behave(self, **changes: Any) -> None:
        """Change how the cloud behaves from now on: any field of sandbox.behaviour.Behaviour, or stay_down=NODE_ID."""
        self._call("behave", changes)
