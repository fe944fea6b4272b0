"""What the sandbox asks of an emulator of AWS. Which one it is, sandbox/emulator.py chooses.

What any emulator has that behaves as AWS does is not here: an adapter corrects its emulator in `install`.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from sandbox.aws_json import ConditionKeys, Json, JsonService, Response
from sandbox.aws_query import QueryService
from sandbox.behaviour import Behaviour
from sandbox.events import Event
from sandbox.iam import Credentials

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Application = Callable[..., Awaitable[None]]  # of ASGI: of a scope, Receive and Send
OwnService = JsonService | QueryService
# Return the refusal of a request to this service, or None: method, path, headers, body, query.
Check = Callable[[str, str, str, Mapping[str, str], bytes, Json], Response | None]


class AwsEmulator(Protocol):
    """One account of AWS in one Region, with IAM enforced, in this process."""

    @property
    def application(self) -> Application:
        """The application that answers requests to AWS."""

    def install(self, behaviour: Behaviour) -> None:
        """Correct it where it differs from AWS; events and cold starts take the time that `behaviour` gives."""

    def serve(self, whole: Sequence[OwnService], partial: Sequence[OwnService]) -> None:
        """Answer requests to these services by the sandbox, which authorizes them: all, or those that it `serves`."""

    def check_requests(self, services: Iterable[str], check: Check) -> None:
        """Check each request to these services, by their signing names, before anything answers it. Called last."""

    def provision(self, kind: str, put: Callable[[str, Json], None], delete: Callable[[str], None]) -> None:
        """Let CloudFormation manage named resources of this type by `put` (name, properties) and `delete`."""

    def authorize(self, access_key: str, service: str, action: str, resource: str, context: ConditionKeys) -> None:
        """Ask IAM whether the owner of the access key may do this. Raises AwsError (AccessDeniedException)."""

    def assume_role(self, principal: str, role_arn: str, session: str, tags: Mapping[str, str]) -> Credentials:
        """Begin a tagged session of a role that trusts this service principal. Raises AwsError."""

    def emit(self, event: Event) -> None:
        """Put an event of an AWS service on the default bus of EventBridge."""

    def write_logs(self, group: str, stream: str, events: list[Json]) -> None:
        """Append to a stream of CloudWatch Logs, which it creates, as ECS does. Raises OSError: there is no group."""

    def register_cluster(self, cluster: Json, admins: str) -> str:
        """Describe an EKS cluster by this record, as it is at each call; returns where EKS reviews tokens. Its creator,
        the account's root, is in the group `admins`.
        """

    def pod_identity_associations(self, cluster: str) -> list[Json]:
        """Return the EKS Pod Identity associations of a cluster."""
