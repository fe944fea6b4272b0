"""The console's function: who is let in by Cognito's word, as whom they call AWS, and what their role may have done."""

import re
import time
from collections.abc import Iterator, Set
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber
from mangum import Mangum
from moto import mock_aws

import lambdas.console as console_function
from lambdas.console import _client_secret as client_secret
from lambdas.sign_in import CALLBACK, PENDING, SESSION, SIGNED_OUT, SignIn, UserPool
from nodeheal.adapters.aws import calls
from nodeheal.adapters.aws.assumed_roles import AssumedRoles
from nodeheal.api.client import Client
from nodeheal.console.app import Console, console_app
from nodeheal.console.gate import SignedInPerson
from nodeheal.console.rendering import SUBJECTS
from nodeheal.console.roles import ACTS_OF_ROLE, EVERYTHING, AnyAct, OwnAct, Role, strongest
from nodeheal.contract import names
from nodeheal.contract.acts import Drain
from nodeheal.contract.vocabulary import ActKind
from nodeheal.services.intake.ingest import ingest
from tests.support.acts import MemoryControlPlane
from tests.support.builders import ACT, memory_ports, node, xid
from tests.support.cognito import Cognito, Person, cognito, signed
from tests.support.console import deployment_of
from tests.support.console_sign_in import HOST, KEY, OWN, Browser

A = "mi-0a1b2c3d4e5f60718"
FORM = {"node": A, "why": "new riser", "key": KEY}
SECONDS_OF_A_SHIFT = 28_800


@pytest.fixture(scope="module")
def running() -> Iterator[Cognito]:
    with cognito(f"{OWN}{CALLBACK}", f"{OWN}{SIGNED_OUT}") as pool:
        yield pool


@pytest.fixture
def pool(running: Cognito) -> Cognito:
    running.person, running.claims, running.seconds = Person("ada", ("operator",)), {}, SECONDS_OF_A_SHIFT
    return running


@pytest.fixture
def client() -> Client:
    ports = memory_ports()
    ports.nodes.save(node(A))
    return Client(ports, lambda: ACT, MemoryControlPlane(ports, ACT))


@pytest.fixture
def authenticator(pool: Cognito, client: Client) -> SignIn:
    def make_person(person: str, role: Role, form_token: str) -> SignedInPerson:
        deployment = deployment_of(client, who=f"{person} ({role})", allowed=ACTS_OF_ROLE[role], look=None)
        return SignedInPerson(deployment, form_token)

    return SignIn(UserPool(pool.issuer, pool.address, pool.client_id, lambda: pool.client_secret), HOST, make_person)


@pytest.fixture
def browser(authenticator: SignIn) -> Browser:
    return Browser(Mangum(console_app(authenticator), lifespan="off"))


def acts_of(client: Client) -> list[object]:
    """What the control plane was asked for."""
    assert isinstance(client.control_plane, MemoryControlPlane)
    return list(client.control_plane.acts)


def test_a_person_signs_in_sees_the_page_that_was_wanted_and_acts(browser: Browser, client: Client) -> None:
    back = browser.sign_in(f"/nodes/{A}?x=1.5%262")

    assert (back.status, back.headers["location"]) == (303, f"/nodes/{A}?x=1.5%262")
    page = browser.get(f"/nodes/{A}")
    assert (page.status, "ada (operator)" in page.text) == (200, True)
    assert browser.post("/acts/drain", FORM).status == 303
    assert acts_of(client) == [Drain(node=A, why="new riser")]


def test_a_session_is_a_cookie_that_only_this_host_gets_and_no_script_reads(browser: Browser, pool: Cognito) -> None:
    pending = browser.get("/")
    back = browser.get(browser.at_cognito(pending.headers["location"]))

    for name, answer, longest in ((PENDING, pending, 600), (SESSION, back, SECONDS_OF_A_SHIFT)):
        assert name.startswith("__Host-")
        attributes = {part.strip().lower() for part in answer.cookies[name].split(";")[1:]}
        assert attributes >= {"secure", "httponly", "samesite=lax", "path=/"}
        assert not [each for each in attributes if each.startswith("domain")]
        [age] = [int(each.partition("=")[2]) for each in attributes if each.startswith("max-age")]
        assert 0 < age <= longest
    assert PENDING not in browser.cookies
    assert pool.client_secret not in pending.headers["location"] + str(back)


def test_each_sign_in_has_secrets_of_its_own(browser: Browser) -> None:
    queries = [parse_qs(urlsplit(browser.get("/").headers["location"]).query) for _ in range(2)]

    for name in ("state", "nonce", "code_challenge"):
        assert queries[0][name] != queries[1][name]
    assert queries[0]["code_challenge_method"] == ["S256"]


def test_every_route_but_the_sign_in_and_the_assets_asks_for_the_session(
    authenticator: SignIn, browser: Browser
) -> None:
    for route in Console(authenticator).routes():
        path = re.sub(r"\{\w+\}|\{\w+:int\}", "1", route.path)
        if path in (CALLBACK, SIGNED_OUT, "/static"):
            continue
        for method in getattr(route, "methods", None) or ():
            answer = browser.ask(method, path, origin=OWN)
            assert answer.status == (303 if method == "GET" else 401), (method, path)
            assert A not in answer.text


def test_a_part_of_a_page_is_not_led_to_the_sign_in(browser: Browser) -> None:
    answer = browser.get("/", **{"hx-request": "true"})
    assert (answer.status, answer.cookies) == (401, {})


def test_an_asset_needs_no_session_and_what_is_none_shows_no_page(browser: Browser) -> None:
    assert browser.get("/static/console.css").status == 200
    missing = browser.get("/static/nothing")
    assert (missing.status, "token" in missing.text) == (404, False)


@pytest.mark.parametrize("path", ["/", "/static/console.css", "/signed-in", "/signed-out", "/nothing"])
def test_every_answer_has_the_headers_of_loopback_and_holds_browsers_to_tls(browser: Browser, path: str) -> None:
    headers = browser.get(path).headers
    assert headers["strict-transport-security"] == "max-age=31536000"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-frame-options"] == "DENY"


def test_an_answer_under_another_name_is_refused(browser: Browser) -> None:
    for host in ("attacker.example", f"{HOST}.attacker.example", f"{HOST}:443", ""):
        assert browser.get("/", host=host).status == 421


# Tokens ---------------------------------------------------------------------------------------------------------------

CLAIMS: list[dict[str, Any]] = [
    {"aud": "another-client"},
    {"aud": ["1example23456789", "another-client"]},
    {"aud": None},
    {"iss": "https://cognito-idp.eu-west-1.amazonaws.com/eu-west-1_Another00"},
    {"iss": None},
    {"exp": int(time.time()) - 60},
    {"exp": None},
    {"iat": int(time.time()) + 3_600},
    {"token_use": "access"},
    {"token_use": None},
    {"cognito:username": None},
    {"cognito:groups": "operator"},
    {"cognito:groups": ["operators", "OPERATOR", "admin"]},
    {"cognito:groups": None},
]


# Not the claims themselves: each process of the tests has its own time.
@pytest.mark.parametrize("claims", CLAIMS, ids=lambda claims: "-".join(claims))
def test_a_token_with_another_claim_opens_no_session_and_begins_none(
    browser: Browser, pool: Cognito, claims: dict[str, Any]
) -> None:
    browser.cookies[SESSION] = pool.id_token(**claims)
    assert browser.get("/").status == 303
    browser.cookies.clear()
    pool.claims = claims
    assert browser.sign_in().status == 403
    assert SESSION not in browser.cookies


def forged(pool: Cognito) -> dict[str, str]:
    """Tokens that nobody has signed for this client."""
    now = int(time.time())
    claims = {"iss": pool.issuer, "aud": pool.client_id, "token_use": "id", "nonce": "n", "sub": "s", "iat": now}
    claims |= {"exp": now + 600, "cognito:username": "eve", "cognito:groups": ["operator"]}
    good = pool.id_token()
    head, _, signature = good.split(".")
    return {
        "another key": signed(claims, by=1),
        "another key that names itself": signed(claims, by=1, jku="https://attacker.example/jwks.json"),
        "an unknown key": signed(claims, by=1, kid="key-1"),
        "none": signed(claims, alg="none"),
        "None": signed(claims, alg="None"),
        "the public key as a secret": signed(claims, alg="HS256"),
        "other claims": f"{head}.{signed(claims).split('.')[1]}{'A'}.{signature}",
        "no signature": good.rpartition(".")[0] + ".",
        "an access token": pool.access_token(),
        "no token": "x",
        "empty": "",
        "many dots": "." * 50,
    }


def test_a_token_that_cognito_has_not_signed_for_us_lets_nobody_in(browser: Browser, pool: Cognito) -> None:
    for name, token in forged(pool).items():
        browser.cookies = {SESSION: token}
        answer = browser.get(f"/nodes/{A}")
        assert (answer.status, A in answer.text) == (303, False), name
    browser.cookies = {SESSION: pool.id_token()}
    assert browser.get(f"/nodes/{A}").status == 200


def test_unknown_keys_do_not_have_the_pools_keys_fetched_each_time(browser: Browser, pool: Cognito) -> None:
    pool.fetched.clear()
    for number in range(20):
        browser.cookies = {SESSION: signed({}, by=1, kid=f"key-{number + 1}")}
        browser.get("/")
    assert len(pool.fetched) <= 2


def test_a_session_ends_when_its_token_does(browser: Browser, pool: Cognito) -> None:
    pool.seconds = -9  # clocks may differ by ten seconds
    browser.cookies = {SESSION: pool.id_token()}
    assert browser.get("/").status == 200
    pool.seconds = -11
    browser.cookies = {SESSION: pool.id_token()}
    assert browser.get("/").status == 303


# The way back ---------------------------------------------------------------------------------------------------------


def test_a_code_with_a_state_of_another_browser_is_not_taken(browser: Browser) -> None:
    """Else a page could sign people in as its author, who would read what they then do."""
    other = Browser(browser.handler)
    back = browser.at_cognito(browser.get("/").headers["location"])

    assert other.get(back).status == 403  # it has pending nothing
    other.get("/")
    assert other.get(back).status == 403  # it has pending another one
    assert SESSION not in other.cookies


def test_of_two_windows_that_sign_in_at_once_the_later_one_is_signed_in(browser: Browser) -> None:
    earlier = browser.at_cognito(browser.get("/").headers["location"])
    later = browser.at_cognito(browser.get("/jobs").headers["location"])

    assert browser.get(earlier).status == 403
    assert browser.get(later).headers["location"] == "/jobs"
    assert SESSION in browser.cookies


@pytest.mark.parametrize("state", ["", "x", "é"])
def test_a_forged_state_is_refused(browser: Browser, state: str) -> None:
    code = parse_qs(urlsplit(browser.at_cognito(browser.get("/").headers["location"])).query)["code"][0]
    answer = browser.get(f"{CALLBACK}?{urlencode({'code': code, 'state': state})}")
    assert (answer.status, SESSION in browser.cookies) == (403, False)


def test_a_code_is_good_once(browser: Browser) -> None:
    location = browser.get("/").headers["location"]
    pending = dict(browser.cookies)
    back = browser.at_cognito(location)
    assert browser.get(back).status == 303
    browser.cookies = pending
    assert browser.get(back).status == 403
    assert SESSION not in browser.cookies


def test_a_code_of_another_sign_in_fails_by_its_verifier_and_its_nonce(browser: Browser, pool: Cognito) -> None:
    """A code that was stolen from another person, put into the thief's own way back."""
    stolen = parse_qs(urlsplit(browser.at_cognito(browser.get("/").headers["location"])).query)["code"][0]
    thief = Browser(browser.handler)
    state = parse_qs(urlsplit(thief.get("/").headers["location"]).query)["state"][0]
    assert thief.get(f"{CALLBACK}?{urlencode({'code': stolen, 'state': state})}").status == 403
    pool.claims = {"nonce": "of another sign-in"}
    assert thief.sign_in().status == 403
    assert SESSION not in thief.cookies


@pytest.mark.parametrize("query", ["error=access_denied", "code=", "", "code=x&code=y"])
def test_a_way_back_without_a_good_code_says_so(browser: Browser, query: str) -> None:
    state = parse_qs(urlsplit(browser.get("/").headers["location"]).query)["state"][0]
    answer = browser.get(f"{CALLBACK}?state={state}&{query}")
    assert (answer.status, "Cognito has not signed you in" in answer.text) == (403, True)


@pytest.mark.parametrize(
    "wanted", ["//attacker.example", "https://attacker.example", "/\\attacker.example", "", "\t//x", "/\nx"]
)
def test_the_sign_in_leads_to_no_other_place(browser: Browser, wanted: str) -> None:
    location = browser.get("/").headers["location"]
    browser.cookies[PENDING] = ".".join([*browser.cookies[PENDING].split(".")[:3], quote(wanted, safe="")])
    assert browser.get(browser.at_cognito(location)).headers["location"] == "/"
    assert browser.get("//attacker.example/x").status in (303, 404)


def test_an_address_that_no_cookie_has_room_for_is_left_out(browser: Browser) -> None:
    back = browser.sign_in(f"/incidents?{'é' * 2_000}")
    assert (back.status, back.headers["location"]) == (303, "/")


def test_the_callback_goes_nowhere_by_its_own_query(browser: Browser) -> None:
    back = browser.at_cognito(browser.get("/jobs").headers["location"])
    assert browser.get(f"{back}&next=https://attacker.example").headers["location"] == "/jobs"


def test_a_person_in_no_group_has_no_access_and_is_told_so(browser: Browser, pool: Cognito) -> None:
    pool.person = Person("<script>alert(1)</script>\u202e")
    answer = browser.sign_in()
    assert (answer.status, SESSION in browser.cookies) == (403, False)
    assert "none of the groups viewer, researcher, operator" in answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    assert "\u202e" not in answer.text


def test_the_name_of_a_person_is_text_in_every_page(browser: Browser, pool: Cognito) -> None:
    pool.person = Person('"><script>alert(1)</script>', ("viewer",))
    browser.sign_in()
    text = browser.get("/").text
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text


def test_who_signs_out_is_signed_out_at_cognito_too(browser: Browser, pool: Cognito) -> None:
    browser.sign_in()
    answer = browser.post("/leave", {})

    assert answer.status == 303
    assert SESSION not in browser.cookies
    assert browser.at_cognito(answer.headers["location"]) == f"{OWN}{SIGNED_OUT}"
    assert pool.person is None
    assert browser.get(SIGNED_OUT).status == 200
    assert f"form-action 'self' {pool.address};" in answer.headers["content-security-policy"]


# Forms and roles ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("origin", ["https://attacker.example", "null", "", f"http://{HOST}", f"{OWN}:444"])
def test_a_form_of_another_site_does_nothing(browser: Browser, client: Client, origin: str) -> None:
    browser.sign_in()
    assert browser.post("/acts/drain", FORM, origin=origin).status == 403
    assert browser.post("/leave", {}, origin=origin).status == 403
    assert acts_of(client) == []


def test_a_form_with_the_token_of_another_session_does_nothing(browser: Browser, client: Client) -> None:
    other = Browser(browser.handler)
    other.sign_in()
    browser.sign_in()
    for token in ("", "0" * 64, "é", other.token()):
        assert browser.post("/acts/drain", FORM, token=token).status == 403
    assert acts_of(client) == []


OFFERED: dict[Role, Set[AnyAct]] = {
    Role.viewer: set(),
    Role.researcher: {ActKind.SUBMIT_JOB, ActKind.STOP_JOB, ActKind.RESTART_JOB},
    Role.operator: EVERYTHING,
}
ROUTES: dict[AnyAct, str] = {kind: kind.path for kind in SUBJECTS}
ROUTES |= {ActKind.SUBMIT_JOB: "/submit", OwnAct.DRILL: f"/nodes/{A}/drill", OwnAct.POLICY: "/policy/versions/1"}


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("act", ROUTES, ids=str)
def test_a_route_refuses_what_the_role_may_not_have_done_and_asks_nobody(
    browser: Browser, client: Client, pool: Cognito, role: Role, act: AnyAct
) -> None:
    pool.person = Person("ada", (role.value,))
    browser.sign_in()
    posted, shown = browser.post(ROUTES[act], FORM), browser.get(ROUTES[act])

    if act in OFFERED[role]:
        assert posted.status != 403
        assert shown.status != 403
    else:
        assert (posted.status, shown.status) == (403, 403)
        assert "may look, but may not" in posted.text
        assert acts_of(client) == []


def test_pages_offer_a_role_what_its_routes_take(browser: Browser, client: Client, pool: Cognito) -> None:
    ingest(xid(79, node_id=A), client.ports, ACT)
    [row] = client.incidents(client.ports.clock().replace(year=2000)).rows
    for role in Role:
        pool.person, browser.cookies = Person("ada", (role.value,)), {}
        browser.sign_in()
        for page in (
            "/",
            f"/nodes/{A}",
            f"/incidents/{row.incident}",
            "/jobs",
            "/pools/demo",
            "/fleet",
            "/policy",
            "/policy/versions",
        ):
            text = browser.get(page).text
            offered = {act for act, path in ROUTES.items() if re.search(rf'(href|action)="{path}["?]', text)}
            assert offered <= OFFERED[role], (role, page)
    assert ACTS_OF_ROLE == OFFERED


def test_a_viewer_reads_the_policy_and_is_offered_no_change_of_it_and_nobody_a_doctor(
    browser: Browser, client: Client, pool: Cognito
) -> None:
    pool.person = Person("ada", ("viewer",))
    browser.sign_in()
    page = browser.get("/policy")
    assert (page.status, "<form id=" in page.text, "/doctor" in page.text) == (200, False, False)
    for path in ("/policy", "/policy/change", "/policy/replay", "/policy/versions/1"):
        assert browser.post(path, {"document": "{}", "over": "1", "why": "x"}).status == 403
    assert browser.get("/doctor").status == 404


def test_the_strongest_of_the_groups_counts() -> None:
    assert strongest(["viewer", "operator", "researcher"]) is Role.operator
    assert strongest(["researcher", "else", "viewer"]) is Role.researcher
    for groups in ([], None, "operator", ["Operator"], [["operator"]], {"operator": 1}):
        assert strongest(groups) is None


# As whom AWS is called ------------------------------------------------------------------------------------------------

ROLES = "arn:aws:iam::123456789012:role/nodeheal-console-{role}-eu-west-1"


@pytest.fixture
def function(monkeypatch: pytest.MonkeyPatch, pool: Cognito) -> Iterator[Browser]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    cached = (calls.client, console_function._app)
    with mock_aws():
        for each in cached:
            each.cache_clear()
        monkeypatch.setattr(console_function, "_client_secret", lambda *_: pool.client_secret)
        for variable, value in {
            names.ENV_TABLE: "nodeheal",
            names.CONSOLE_URL_VARIABLE: OWN,
            names.CONSOLE_POOL_VARIABLE: "eu-west-1_Aa1Bb2Cc3",
            names.CONSOLE_ISSUER_VARIABLE: pool.issuer,
            names.CONSOLE_LOGIN_VARIABLE: pool.address,
            names.CONSOLE_CLIENT_VARIABLE: pool.client_id,
            names.CONSOLE_ROLES_VARIABLE: ROLES,
            names.ACTS_URL_VARIABLE: "https://acts.example",
        }.items():
            monkeypatch.setenv(variable, value)
        yield Browser(console_function.handler)
    for each in cached:
        each.cache_clear()


def test_a_person_is_at_aws_who_they_are_at_the_sign_in(function: Browser, pool: Cognito) -> None:
    assume = AssumedRoles().caller
    for person, role in (("ada", Role.operator), ("bob", Role.viewer), ("ada", Role.operator)):
        signed_in = console_function._make_person(assume, person, role, "token")
        with signed_in.calling():
            arn = calls.client("sts").get_caller_identity()["Arn"]
            key = calls.client("dynamodb")._get_credentials().access_key
        own = calls.client("dynamodb")._get_credentials().access_key
        assert arn == f"arn:aws:sts::123456789012:assumed-role/nodeheal-console-{role}-eu-west-1/{person}"
        assert signed_in.deployment.who == f"{person} ({role})"
        assert signed_in.deployment.allowed == ACTS_OF_ROLE[role]
        nodes: Any = signed_in.deployment.client.ports.nodes
        assert nodes._table.client._get_credentials().access_key == key != own
    assert signed_in.deployment is console_function._make_person(assume, "ada", Role.operator, "other").deployment


def test_the_function_answers_a_page_with_the_words_of_aws(function: Browser) -> None:
    function.sign_in()
    answer = function.get("/")
    assert answer.status == 502  # this account has no table
    assert "ada (operator)" in answer.text


def test_a_role_that_may_not_be_assumed_now_is_said_under_the_headers_of_every_answer(
    function: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> None:
        raise ClientError({"Error": {"Code": "AccessDenied"}}, "AssumeRole")

    monkeypatch.setattr(AssumedRoles, "caller", denied)
    console_function._app.cache_clear()
    function.sign_in()

    answer = function.get("/")

    assert answer.status == 503
    assert "content-security-policy" in answer.headers


def test_the_secret_of_the_client_is_read_from_cognito(function: Browser) -> None:
    with Stubber(calls.client("cognito-idp")) as cognito_idp:
        asked = {"UserPoolId": "eu-west-1_Aa1Bb2Cc3", "ClientId": "1example23456789"}
        answer = {"UserPoolClient": {"ClientSecret": "9example876543219example8765"}}
        cognito_idp.add_response("describe_user_pool_client", answer, asked)
        assert client_secret(*asked.values()) == "9example876543219example8765"
