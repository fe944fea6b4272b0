"""How an agent is called that speaks as its pod, where AWS names no session of a role after its machine.

EKS Pod Identity puts cluster and pod into the session's tags, and IAM lets the pod write the one item of that name. The
cluster's API server says which machine the pod is on, and the control plane writes that down.
"""

import re
from dataclasses import dataclass
from typing import Self

PREFIX = "pod:"
PATTERN = r"pod:[A-Za-z0-9][A-Za-z0-9_-]{0,99}/[a-z0-9][a-z0-9.-]{0,252}"
_FORM = re.compile(PATTERN)


@dataclass(frozen=True)
class AgentPod:
    """A pod of the agent's DaemonSet."""

    cluster: str
    name: str

    @classmethod
    def of_signer(cls, signer: str) -> Self | None:
        """Return the pod that has this name as a signer; None: it is no pod's."""
        if not _FORM.fullmatch(signer):
            return None
        cluster, _, name = signer.removeprefix(PREFIX).partition("/")
        return cls(cluster, name)

    @property
    def signer(self) -> str:
        """Its item in the heartbeat table, as IAM composes the name: pod:CLUSTER/POD."""
        return f"{PREFIX}{self.cluster}/{self.name}"
