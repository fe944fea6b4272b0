"""The team's console on a living cloud with IAM: what each role sees and has done, and under whose name."""

import json
import re
from collections.abc import Iterator

import pytest

import lambdas.console as console_function
from lambdas.sign_in import CALLBACK, SIGNED_OUT
from nodeheal.adapters.aws import calls
from nodeheal.console.roles import EVERYTHING, Role
from nodeheal.contract import names
from sandbox.client import Sandbox
from stacks.console import POLICIES_OF
from tests.support.cognito import Cognito, Person, cognito
from tests.support.console_sign_in import KEY, OWN, Browser
from tests.support.operators import deployed
from tests.support.until import until

pytestmark = pytest.mark.emulated
POOL = "demo"
# Jobs' logs, plans and drills are of researchers and operators.
PAGES = ("/", "/incidents", "/report", "/fleet", "/jobs", f"/pools/{POOL}", "/policy", "/policy/versions")


@pytest.fixture(scope="module")
def pool() -> Iterator[Cognito]:
    with cognito(f"{OWN}{CALLBACK}", f"{OWN}{SIGNED_OUT}") as running:
        yield running


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("roles"), boot_seconds=0.5) as sandbox:
        sandbox.deploy()
        yield sandbox


@pytest.fixture(scope="module")
def node(cloud: Sandbox) -> str:
    handle, ports = cloud.add_node(POOL), deployed(cloud)
    until(lambda: ports.nodes.get(handle.node_id), "report of the agent")
    return handle.node_id


@pytest.fixture(scope="module")
def role_arn(cloud: Sandbox) -> str:
    """The ARN of the roles, with {role} in it: made here of the deployed policies, as this cloud has no Cognito."""
    iam, region = cloud.client("iam"), cloud.environment()["AWS_REGION"]
    account = cloud.client("sts").get_caller_identity()["Account"]
    trust = {"Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{account}:root"}, "Action": "sts:AssumeRole"}
    for role in Role:
        name = names.CONSOLE_ROLE.format(role=role.value, region=region)
        document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=document)
        for policy in POLICIES_OF[role]:
            arn = f"arn:aws:iam::{account}:policy/{policy.format(region=region)}"
            iam.attach_role_policy(RoleName=name, PolicyArn=arn)
    return f"arn:aws:iam::{account}:role/{names.CONSOLE_ROLE.format(role='{role}', region=region)}"


@pytest.fixture
def browser(
    cloud: Sandbox, pool: Cognito, node: str, role_arn: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Browser]:
    """A browser at the console's function."""
    for variable, value in {
        **cloud.environment(),
        names.ENV_TABLE: names.TABLE,
        names.CONSOLE_URL_VARIABLE: OWN,
        names.CONSOLE_POOL_VARIABLE: "eu-west-1_Aa1Bb2Cc3",
        names.CONSOLE_ISSUER_VARIABLE: pool.issuer,
        names.CONSOLE_LOGIN_VARIABLE: pool.address,
        names.CONSOLE_CLIENT_VARIABLE: pool.client_id,
        names.CONSOLE_ROLES_VARIABLE: role_arn,
    }.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr(console_function, "_client_secret", lambda *_: pool.client_secret)
    for cached in (calls.client, console_function._app):
        cached.cache_clear()
    yield Browser(console_function.handler)
    for cached in (calls.client, console_function._app):
        cached.cache_clear()


def test_each_role_sees_its_pages_and_has_its_acts_done_under_the_persons_name(
    cloud: Sandbox, browser: Browser, pool: Cognito, node: str
) -> None:
    drain = {"node": node, "why": "new riser", "key": KEY}
    for role in Role:
        pool.person, browser.cookies = Person(f"{role}-ada", (role.value,)), {}
        assert browser.sign_in().status == 303
        for page in (*PAGES, f"/nodes/{node}"):
            answer = browser.get(page)
            assert answer.status == 200, (role, page, answer.text)
        may_submit = role is not Role.viewer
        assert browser.get("/submit?pool=demo").status == (200 if may_submit else 403)
        plan = {"from": "yaml", "yaml": "name: tiny\npool: demo\nnodes: 1\nimage: repo/image:1\n"}
        assert browser.post("/submit/plan", plan).status == (200 if may_submit else 403)
        assert browser.get(f"/acts/drain?node={node}").status == (200 if role is Role.operator else 403)
        assert browser.get(f"/nodes/{node}/drill").status == (200 if role is Role.operator else 403)
        assert browser.get("/policy/versions/1").status == (200 if role is Role.operator else 403)
        done = browser.post("/acts/drain", drain)
        assert done.status == (303 if role is Role.operator else 403), (role, done.text)
    shown = browser.get(done.headers["location"]).text
    assert re.search(r"\boperator-ada\b", shown)


def test_iam_refuses_a_role_what_the_table_would_let_it_have(
    browser: Browser, pool: Cognito, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a page and the table of deeds were wrong."""
    monkeypatch.setattr(console_function, "ACTS_OF_ROLE", dict.fromkeys(Role, EVERYTHING))
    pool.person = Person("eve", ("viewer",))
    browser.sign_in()
    refused = browser.post("/acts/isolate", {"node": node, "why": "x", "key": KEY})
    assert refused.status == 400
    assert "AWS does not let you do this" in refused.text
