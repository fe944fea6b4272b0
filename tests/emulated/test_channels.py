"""Chat, PagerDuty and a webhook, deployed by the settings and told what the policy says, in one recovery."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from nodeheal.adapters.aws.policy_documents import PolicyDocuments, deployed_place
from nodeheal.contract import names
from sandbox.client import Sandbox
from sandbox.mailbox import Mailbox
from tests.support.chat_schema import CustomNotification
from tests.support.operators import Operator, deployed, operator
from tests.support.until import until

pytestmark = pytest.mark.emulated

SANDBOX_POLICY = Path(__file__).resolve().parents[2] / "sandbox" / "policy.json"
ROUTING_KEY, TRACKER_KEY = "e93facc04764012d7bfb002500d5d1a6", "letmein"
FAULT = "NVRM: Xid (PCI:0000:b9:00): 79, pid=<unknown>, name=<unknown>, GPU has fallen off the bus."
CHANNELS = {
    "email": {},
    "ops-chat": {},
    "oncall": {"severities": ["PAGE"]},
    "tracker": {"severities": ["PAGE"]},
}


class Endpoint(ThreadingHTTPServer):
    """What PagerDuty and a tracker would be: takes what is posted, and remembers it with its path and headers."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        super().__init__(("127.0.0.1", 0), _Post)

    def bodies(self, path: str) -> list[dict[str, Any]]:
        return [body for where, _, body in self.posted if where == path]


class _Post(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posted.append((self.path, dict(self.headers.items()), json.loads(body)))
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing on standard error."""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory, endpoint: Endpoint) -> Iterator[Sandbox]:
    at = f"http://127.0.0.1:{endpoint.server_port}"
    with Sandbox(tmp_path_factory.mktemp("channels"), boot_seconds=0.5) as sandbox:
        keys = {
            name: sandbox.client("secretsmanager").create_secret(Name=name, SecretString=value)["ARN"]
            for name, value in {"oncall": ROUTING_KEY, "tracker": TRACKER_KEY}.items()
        }
        channels = {
            "ops-chat": {"kind": "chat"},
            "oncall": {"kind": "pagerduty", "url": f"{at}/v2/enqueue", "secret_arn": keys["oncall"]},
            "tracker": {
                "kind": "webhook",
                "url": f"{at}/hook",
                "header": "X-Api-Key",
                "secret_arn": keys["tracker"],
            },
        }
        sandbox.deploy("-c", f"nodeheal={json.dumps({'channels': channels})}")
        sandbox.subscribe_mailbox()
        yield sandbox


@pytest.fixture(scope="module")
def person(cloud: Sandbox) -> Operator:
    return operator(cloud, "ada", "OperatorPolicyArn")


def policy_with(channels: dict[str, Any]) -> str:
    return json.dumps({**json.loads(SANDBOX_POLICY.read_text("utf-8")), "channels": channels})


def test_a_policy_that_names_a_channel_that_is_not_deployed_is_refused_by_its_name(
    person: Operator, tmp_path: Path
) -> None:
    file = tmp_path / "policy.json"
    file.write_text(policy_with({**CHANNELS, "ops-chatt": {}}))

    applied = person.types("policy", "apply", str(file), "--why", "a slip")
    checked = person.types("policy", "check", str(file), "--deployed")

    for done in (applied, checked):
        assert done.returncode != 0
        assert "channels.ops-chatt: this deployment has no such channel" in done.stderr


def test_a_page_reaches_every_channel_and_the_recovery_closes_it(
    cloud: Sandbox, endpoint: Endpoint, person: Operator
) -> None:
    chat = Mailbox(cloud.client("sqs"), "chat")
    topic = cloud.outputs["TopicArn"].replace(names.ALERTS_TOPIC, f"{names.CHANNEL_TOPIC_PREFIX}ops-chat")
    chat.subscribe(cloud.client("sns"), topic)
    documents = PolicyDocuments(cloud.client("appconfig"), deployed_place(cloud.client("cloudformation")))
    documents.apply(policy_with(CHANNELS), "everybody is told")
    node = cloud.add_node("careful")
    until(lambda: deployed(cloud).nodes.get(node.node_id), "report of the agent")

    cloud.inject(node, FAULT, persists=False, kill_rank=False)
    [trigger] = until(lambda: endpoint.bodies("/v2/enqueue"), "trigger")
    incident_id = trigger["dedup_key"]
    person.does("approve", incident_id, "--why", "go on")
    until(lambda: endpoint.bodies("/v2/enqueue")[1:], "resolve")

    assert (trigger["event_action"], trigger["routing_key"]) == ("trigger", ROUTING_KEY)
    assert trigger["payload"]["source"] == node.node_id
    resolve = {"event_action": "resolve", "dedup_key": incident_id, "routing_key": ROUTING_KEY}
    assert endpoint.bodies("/v2/enqueue")[1:] == [resolve]
    [(headers, page)] = [(headers, body) for path, headers, body in endpoint.posted if path == "/hook"]
    assert headers["X-Api-Key"] == TRACKER_KEY
    assert (page["incident_id"], page["phase"], page["version"]) == (incident_id, "ASKS", 1)
    messages = until(lambda: len(found := chat.read()) > 1 and found, "messages in the chat")
    threads = {CustomNotification.model_validate_json(body).metadata.threadId for _, body in messages}  # type: ignore[union-attr]
    assert threads == {incident_id}
    assert len(until(lambda: len(mails := cloud.mails()) > 1 and mails, "emails")) == 2
