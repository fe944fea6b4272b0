"""Defines the transmitted form of a node's event: the exact signed text, and its signer. See ADR 49."""

from typing import Annotated

from pydantic import Base64Bytes, Field

from nodeheal.contract import agent_pod
from nodeheal.contract.agent_pod import AgentPod
from nodeheal.contract.health_event import Frozen

# An event has 8 KiB of evidence, every character of which may be escaped once more.
SIGNED_CHARACTERS = 131_072
SIGNER_PATTERN = rf"^([A-Z0-9]{{16,128}}:[A-Za-z0-9][A-Za-z0-9._/-]{{1,127}}|{agent_pod.PATTERN})$"


class SignedEvent(Frozen):
    """The detail of every agent event, on the bus and by SNS."""

    signed: Annotated[str, Field(max_length=SIGNED_CHARACTERS)] = Field(
        description="a JSON object with detail_type, signed_at (seconds since the epoch) and event, exactly as signed"
    )
    signer: Annotated[str, Field(pattern=SIGNER_PATTERN)] = Field(
        description="the item in the heartbeat table that holds the public key: ROLE-ID:MACHINE-ID, or pod:CLUSTER/POD"
    )
    key_id: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")] = Field(
        description="the first 16 hexadecimal digits of the public key's SHA-256"
    )
    signature: Annotated[Base64Bytes, Field(max_length=128)] = Field(
        description="Ed25519 over 'nodeheal event 1', a line feed and the signed text in UTF-8"
    )

    @property
    def pod(self) -> AgentPod | None:
        """Return the pod that signed, where its cluster's API server says which machine that is; None: a machine."""
        return AgentPod.of_signer(self.signer)

    @property
    def role_id(self) -> str:
        """Return the id of the role of the machine's item."""
        return self.signer.partition(":")[0]

    @property
    def machine_id(self) -> str:
        """Return the machine that signed: AWS names the sessions of a machine's role after it."""
        return self.signer.partition(":")[2]


class SignedText(Frozen):
    """The content of the signed text."""

    detail_type: str
    signed_at: int = Field(ge=0, le=2**40)
    event: dict[str, object]
