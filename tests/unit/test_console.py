"""The console: who is let in, what pages show of hostile records, and that each act is done once, by its own form."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import quote

import pytest

from nodeheal.api.client import Client
from nodeheal.console import app
from nodeheal.console.app import FORM_BYTES, Console
from nodeheal.console.gate import SESSION_SECONDS, Session, own_address
from nodeheal.contract.acts import Diagnose, Drain, SubmitJob
from nodeheal.contract.vocabulary import ActKind, Availability, NodeState
from nodeheal.services.intake.ingest import ingest
from tests.support.acts import MemoryControlPlane
from tests.support.builders import ACT, memory_ports, node, started_job, stored_node, xid
from tests.support.console import ServedConsole, deployment_of, served
from tests.support.hardware import reports_hardware
from tests.support.jobs import ecs_job

A, B = "mi-0a1b2c3d4e5f60718", "mi-0b1b2c3d4e5f60718"
KEY = "0" * 32
HOSTILE = "<script>alert(1)</script>"
PAGES = (
    *("/", "/incidents", "/fleet", "/jobs", "/submit", "/report", "/policy", "/policy/versions/1", "/doctor"),
    *(f"/nodes/{A}", f"/nodes/{A}/drill", "/pools/demo"),
)


@pytest.fixture
def client() -> Client:
    ports = memory_ports()
    for node_id in (A, B):
        ports.nodes.save(node(node_id))
    return Client(ports, lambda: ACT, MemoryControlPlane(ports, ACT))


@pytest.fixture
def console(client: Client) -> Iterator[ServedConsole]:
    with served(client) as console:
        console.enter()
        yield console


def acts_of(client: Client) -> list[object]:
    """What the control plane was asked for."""
    assert isinstance(client.control_plane, MemoryControlPlane)
    return list(client.control_plane.acts)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_shown_to_who_has_entered_and_to_nobody_else(console: ServedConsole, path: str) -> None:
    assert console.get(path).status == 200
    console.cookie = ""
    refused = console.get(path)
    assert refused.status == 401
    assert A not in refused.text


def test_every_route_but_the_entrance_and_the_assets_asks_for_the_session(client: Client) -> None:
    routes = Console(Session("127.0.0.1", 1, deployment_of(client))).routes()
    with served(client) as console:
        for route in routes:
            path = re.sub(r"\{\w+\}|\{\w+:int\}", "1", route.path)
            if path in ("/enter", "/static"):
                continue
            for method in getattr(route, "methods", None) or ():
                answer = console.post(path, {}) if method == "POST" else console.get(path)
                assert answer.status == 401, (method, path)


@pytest.mark.parametrize("key", ["", "wrong", "ü"])
def test_a_wrong_key_lets_nobody_in(client: Client, key: str) -> None:
    with served(client) as console:
        answer = console.get(f"/enter?key={quote(key)}")
        assert answer.status == 403
        assert "set-cookie" not in answer.headers


def test_a_session_ends_after_its_time_and_when_it_is_left(client: Client) -> None:
    now = [0.0]
    with served(client, clock=lambda: now[0]) as console:
        console.enter()
        assert console.get("/").status == 200
        now[0] = SESSION_SECONDS
        assert console.get("/").status == 401
        console.enter()
        assert console.post("/leave", {}).status == 200
        assert console.get("/").status == 401


def test_the_cookie_is_out_of_reach_for_scripts_and_other_sites(client: Client) -> None:
    with served(client) as console:
        cookie = console.get(f"/enter?key={console.session.key}").headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=lax" in cookie


def test_a_name_that_points_at_loopback_is_not_answered(console: ServedConsole) -> None:
    """DNS rebinding: the attacker's page has its own name, and its browser would send no cookie; the key neither."""
    own, port = console.host, console.port
    for host in ("attacker.example", f"attacker.example:{port}", "127.0.0.1", f"{own}.x", f"localhost:{port}"):
        answer = console.get("/", host=host)
        assert answer.status == 421
        assert own not in answer.text  # it is a name that nobody else knows


@pytest.mark.parametrize("origin", ["http://attacker.example", "null", "", "http://127.0.0.1:1"])
def test_a_form_of_another_site_does_nothing(client: Client, console: ServedConsole, origin: str) -> None:
    answer = console.post("/acts/drain", {"node": A, "why": "x", "key": KEY}, origin=origin)
    assert answer.status == 403
    assert acts_of(client) == []


@pytest.mark.parametrize("token", ["", "0" * 64, "é"])
def test_a_form_without_the_sessions_token_does_nothing(client: Client, console: ServedConsole, token: str) -> None:
    answer = console.post("/acts/drain", {"node": A, "why": "x", "key": KEY}, token=token)
    assert answer.status == 403
    assert acts_of(client) == []


@pytest.mark.parametrize("path", [*PAGES, "/enter?key=wrong", "/static/console.css", "/nothing"])
def test_no_page_can_be_framed_or_run_what_is_not_the_consoles(console: ServedConsole, path: str) -> None:
    headers = console.get(path).headers
    policy = headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", PAGES)
def test_no_page_has_a_script_or_a_style_of_its_own(console: ServedConsole, path: str) -> None:
    text = console.get(path).text
    assert re.findall(r"<script(?![^>]*\bsrc=)|\bstyle=|<style|\bon\w+=\"|https?://", text) == []


@pytest.mark.parametrize(
    "wanted",
    ["//attacker.example", "https://attacker.example", "/\\attacker.example", "javascript:alert(1)", "\t//x", ""],
)
def test_the_entrance_leads_to_no_other_place(client: Client, wanted: str) -> None:
    assert own_address(wanted) == "/"
    with served(client) as console:
        answer = console.get(f"/enter?key={console.session.key}&next={quote(wanted)}")
        assert answer.headers["location"] == "/"


def test_who_enters_comes_to_the_page_that_was_asked_for_before(client: Client) -> None:
    with served(client) as console:
        refused = console.get(f"/nodes/{A}?x=1")
        assert refused.status == 401
        assert "console.css" in refused.text
        console.cookie = refused.headers["set-cookie"].partition(";")[0]
        assert console.get(f"/enter?key={console.session.key}").headers["location"] == f"/nodes/{A}?x=1"
        console.cookie = f"{console.session.wanted}=%2F%2Fevil.example"
        assert console.get(f"/enter?key={console.session.key}").headers["location"] == "/"


def test_the_entrance_leads_to_the_page_that_was_wanted(client: Client) -> None:
    with served(client) as console:
        answer = console.get(f"/enter?key={console.session.key}&next=/incidents/inc-1%3Fx=1")
        assert answer.headers["location"] == "/incidents/inc-1?x=1"


def test_what_a_node_has_said_is_text_in_every_page(client: Client, console: ServedConsole) -> None:
    ports = client.ports
    ingest(xid(119, evidence=f"{HOSTILE}\u202e"), ports, ACT)
    [row] = client.incidents(ports.clock().replace(year=2000)).rows
    assert ports.nodes.save(replace(stored_node(ports, B), state_reason=f"{HOSTILE}\x1b[2J", rack=HOSTILE))
    for path in (*PAGES, f"/nodes/{B}", "/fleet?by=rack", f"/incidents/{row.incident}"):
        text = console.get(path).text
        assert HOSTILE not in text
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "&lt;script&gt;" in console.get(f"/nodes/{B}").text


def test_a_page_that_has_not_changed_is_not_sent_again(client: Client, console: ServedConsole) -> None:
    first = console.get("/")
    again = console.get("/", **{"if-none-match": first.headers["etag"]})
    assert (again.status, again.text) == (304, "")
    assert client.ports.nodes.save(node("mi-0c1b2c3d4e5f60718"))
    assert console.get("/", **{"if-none-match": first.headers["etag"]}).status == 200


def test_an_act_is_previewed_done_and_its_effects_are_shown(client: Client, console: ServedConsole) -> None:
    asked = console.get(f"/acts/drain?node={A}").text
    assert f"{A} (pool demo), HEALTHY" in asked
    assert acts_of(client) == []

    done = console.post("/acts/drain", {"node": A, "why": "new riser", "key": KEY})

    assert acts_of(client) == [Drain(node=A, why="new riser")]
    assert done.status == 303
    page = console.get(done.headers["location"])
    assert page.status == 200
    assert "Drain:" in page.text


def test_an_act_that_is_sent_twice_is_done_once(client: Client, console: ServedConsole) -> None:
    form = {"node": A, "why": "new riser", "key": KEY}
    assert {console.post("/acts/drain", form).headers["location"] for _ in range(2)} == {
        f"/incidents/{client.node(A).incident}?did=DRAIN"
    }
    assert len(client.incidents(client.ports.clock().replace(year=2000)).rows) == 1


@pytest.mark.parametrize(
    ("form", "word"),
    [
        ({"node": A, "why": "", "key": KEY}, "why"),
        ({"node": A, "why": "x", "key": "short"}, "key"),
        ({"node": "-bad-", "why": "x", "key": KEY}, "node"),
        ({"node": A, "why": "x", "key": KEY, "kind": "REBOOT"}, "kind"),
    ],
)
def test_a_form_that_is_wrong_is_refused_by_the_name_of_its_field(
    client: Client, console: ServedConsole, form: dict[str, str], word: str
) -> None:
    answer = console.post("/acts/drain", form)
    assert answer.status == 400
    assert word in answer.text or word == "key"
    assert acts_of(client) == []


def test_an_act_of_an_unknown_node_is_not_found(console: ServedConsole) -> None:
    assert console.get("/acts/drain?node=mi-0nothing00000000").status == 404
    assert console.post("/acts/drain", {"node": "mi-0nothing00000000", "why": "x", "key": KEY}).status == 404


def test_an_act_that_is_not_possible_now_says_so_before_and_after(console: ServedConsole) -> None:
    shown = console.get(f"/acts/release?node={A}")
    assert "Not possible now" in shown.text
    assert '<form class="act"' not in shown.text
    refused = console.post("/acts/release", {"node": A, "why": "x", "key": KEY})
    assert refused.status == 400
    assert "nodeheal has not taken it out of service" in refused.text


def test_a_checked_box_and_a_level_reach_the_act(client: Client, console: ServedConsole) -> None:
    console.post("/acts/diagnose", {"node": A, "why": "x", "key": KEY, "level": "3", "may_stop_job": "true"})
    assert acts_of(client) == [Diagnose(node=A, why="x", level=3, may_stop_job=True)]


def test_an_endless_form_is_not_read_to_its_end(console: ServedConsole) -> None:
    assert console.post("/acts/drain", {"node": A, "why": "x" * FORM_BYTES, "key": KEY}).status == 413


@pytest.mark.parametrize("path", ["/nothing", "/acts/reconcile", "/acts/submit-job", "/incidents/inc-x", "/jobs/none"])
def test_what_is_not_there_is_said_in_a_page(console: ServedConsole, path: str) -> None:
    answer = console.get(path)
    assert answer.status == 404
    assert "<h1>Not found</h1>" in answer.text


@pytest.mark.parametrize(
    "query", ["/incidents?since=1y", "/incidents?state=lost", "/fleet?by=x", "/fleet?group=x", "/jobs?after=x"]
)
def test_a_wrong_filter_is_named(console: ServedConsole, query: str) -> None:
    answer = console.get(query)
    assert answer.status == 400
    assert "Not done" in answer.text


def test_a_fleet_too_large_for_links_is_read_in_parts_for_its_drawing(
    console: ServedConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "CELLS", 1)
    monkeypatch.setattr(app, "CELLS_AT_ONCE", 1)

    page = console.get("/fleet?by=rack")

    assert 'data-cells="/fleet/cells?by=rack"' in page.text
    first = json.loads(console.get("/fleet/cells?by=rack").text)
    last = json.loads(console.get(first["next"]).text)
    assert [*first["nodes"], *last["nodes"]] == [["no rack", A, "FREE"], ["no rack", B, "FREE"]]
    assert last["next"] is None


def test_what_runs_is_never_taken_from_a_link(console: ServedConsole) -> None:
    text = console.get("/submit?pool=demo&image=attackers:1&command=steal&mounts=[]").text
    assert "pool: demo" in text
    assert "attackers:1" not in text
    assert "steal" not in text


@pytest.mark.parametrize("bomb", ["[" * 5_000, "a: &a [x,x]\n" + "b: {<<: [*a,*a]}\n" * 9])
def test_a_field_that_would_grow_without_end_is_refused_like_a_file(console: ServedConsole, bomb: str) -> None:
    answer = console.post("/submit/plan", {"from": "form", "f.name": "tiny", "f.mounts": bomb})
    assert answer.status == 200
    assert "Not yet a job" in answer.text


def test_an_address_that_a_colleague_has_sent_leads_to_its_page_here(console: ServedConsole) -> None:
    sent = "http%3A%2F%2F0a1b.localhost%3A8473%2Fincidents%3Fstate%3Dopen"
    assert console.get(f"/search?q={sent}").headers["location"] == "/incidents?state=open"
    assert console.get("/search?q=http%3A%2F%2Fa%2F%2Fevil.example").headers["location"] == "/"


def test_a_search_goes_to_what_has_the_name(client: Client, console: ServedConsole) -> None:
    ingest(xid(79, node_id=A), client.ports, ACT)
    [row] = client.incidents(client.ports.clock().replace(year=2000)).rows
    assert console.get(f"/search?q={A}").headers["location"] == f"/nodes/{A}"
    assert console.get(f"/search?q={A[:8]}").headers["location"] == f"/nodes/{A}"
    assert console.get("/search?q=demo").headers["location"] == "/pools/demo"
    assert console.get(f"/search?q={row.incident[-10:]}").headers["location"] == f"/incidents/{row.incident}"
    assert console.get("/search?q=nothing-of-this").status == 404
    assert console.get("/search?q=").status in (400, 404)


def test_an_incident_is_exported_as_it_is_on_record(client: Client, console: ServedConsole) -> None:
    ingest(xid(79, node_id=A), client.ports, ACT)
    [row] = client.incidents(client.ports.clock().replace(year=2000)).rows
    answer = console.get(f"/incidents/{row.incident}/export")
    assert json.loads(answer.text) == client.incident(row.incident).model_dump(mode="json")
    assert answer.headers["content-disposition"] == f'attachment; filename="{row.incident}.json"'


def test_accelerators_are_shown_with_what_their_driver_says(client: Client, console: ServedConsole) -> None:
    reports_hardware(client.ports, A)
    text = console.get(f"/nodes/{A}").text
    assert "p5.48xlarge" in console.get("/fleet?by=instance+type").text
    for shown in ("NVIDIA H100 80GB HBM3", "165392200010", "41", "17 of 18", "81559"):
        assert shown in text


def test_a_node_is_called_alike_in_the_fleet_and_on_its_page(client: Client, console: ServedConsole) -> None:
    client.ports.nodes.save(replace(stored_node(client.ports, A), state=NodeState.QUARANTINED))
    for path in (f"/nodes/{A}", "/fleet"):
        assert "QUARANTINED" in console.get(path).text.upper()
    assert console.get(f"/nodes/{A}").text.count('class="chip bad">quarantined') == 1
    assert client.node(B).availability is Availability.FREE


def test_a_job_and_its_runs_are_shown(client: Client, console: ServedConsole) -> None:
    nodes = [client.ports.nodes.get(node_id) for node_id in (A, B)]
    started_job(
        ecs_job("llama", "demo", "training", "trainer:1", "trainer", 2),
        [found for found in nodes if found],
        client.ports,
    )
    text = console.get("/jobs/llama").text
    assert "Run 1" in text
    assert A in text
    assert "llama" in console.get("/").text


JOB = {"name": "tiny", "pool": "demo", "nodes": "1", "image": "repo/image:1"}
FILE = "name: tiny\npool: demo\nnodes: 1\nimage: repo/image:1\n"


def test_the_form_and_the_file_of_a_job_follow_one_another(console: ServedConsole) -> None:
    of_form = console.post("/submit/plan", {"from": "form", **{f"f.{name}": value for name, value in JOB.items()}})
    assert FILE in of_form.text
    of_file = console.post("/submit/plan", {"from": "yaml", "yaml": FILE})
    assert 'name="f.image" value="repo/image:1"' in of_file.text
    assert A in of_file.text  # the nodes of the pool, to choose from


def test_a_wrong_file_is_answered_with_its_line_and_field(console: ServedConsole) -> None:
    answer = console.post("/submit/plan", {"from": "yaml", "yaml": f"{FILE}steps: many\n"})
    assert "line 5: steps:" in answer.text
    broken = console.post("/submit/plan", {"from": "yaml", "yaml": "a: [\n"})
    assert "Not yet a job" in broken.text


def test_a_job_is_submitted_once_from_its_file(client: Client, console: ServedConsole) -> None:
    for _ in range(2):
        answer = console.post("/submit", {"yaml": FILE, "key": KEY})
    [first, _] = acts_of(client)
    assert isinstance(first, SubmitJob)
    assert first.spec.name == "tiny"
    assert answer.status in (303, 409)
    assert console.get("/jobs/tiny").status == 200


def test_of_form_and_file_the_one_that_was_changed_last_is_submitted(client: Client, console: ServedConsole) -> None:
    form = {"f.name": "later", "f.pool": "demo", "f.nodes": "1", "f.image": "trainer:1", "f.command": "train"}

    console.post("/submit", {"from": "form", "yaml": FILE, "key": KEY, **form})

    [act] = acts_of(client)
    assert isinstance(act, SubmitJob)
    assert act.spec.name == "later"


def test_a_file_that_cannot_be_read_is_not_written_over_by_the_form(client: Client, console: ServedConsole) -> None:
    broken = {"from": "form", "yaml": "command: [python, train.py\n", "f.name": "tiny", "key": KEY}
    plan = console.post("/submit/plan", broken).text
    assert "line 2" in plan
    assert 'id="yaml"' not in plan
    assert 'id="fields"' not in plan
    assert console.post("/submit", broken).status == 400
    assert acts_of(client) == []


def test_what_no_field_of_the_form_is_for_stays_in_the_file(console: ServedConsole) -> None:
    plan = console.post("/submit/plan", {"from": "form", "yaml": "bogus: 1\n", "f.name": "tiny"}).text
    assert "name: tiny\nbogus: 1" in plan


def test_a_refusal_leads_back_to_the_page_before(console: ServedConsole) -> None:
    answer = console.post("/acts/drain", {"node": A, "why": " ", "key": KEY}, referer=f"http://x/acts/drain?node={A}")
    assert f'href="/acts/drain?node={A}"' in answer.text
    assert 'href="//evil' not in console.get("/nothing", referer="http://x//evil.example/").text


def test_no_form_is_sent_by_enter_in_a_field(client: Client, console: ServedConsole) -> None:
    """The first button of a form is pressed by it: an act must be meant."""
    for path in (f"/acts/reboot?node={A}", "/submit", "/policy"):
        form = console.get(path).text.partition('method="post"')[2]
        assert re.findall(r"<button[^>]*>", form)[0] == "<button disabled hidden>", path


def test_the_lines_of_a_text_end_as_they_were_written(console: ServedConsole) -> None:
    text = "name: tiny\npool: demo\n"
    answer = console.post("/submit", {"yaml": text.replace("\n", "\r\n"), "key": KEY})
    assert text in answer.text


def test_a_file_that_is_refused_is_not_lost(client: Client, console: ServedConsole) -> None:
    answer = console.post("/submit", {"yaml": "name: tiny\npool: demo\n", "key": KEY})
    assert answer.status == 400
    assert "name: tiny" in answer.text
    assert "name: tiny" in console.post("/submit", {"yaml": "name: tiny\n", "key": "short"}).text
    assert acts_of(client) == []


def test_a_drill_is_previewed_and_begun_with_the_reason(client: Client, console: ServedConsole) -> None:
    assert (
        "pool demo is not marked for drills" in console.get(f"/nodes/{A}/drill?xid=79").text
    )  # this pool permits none
    assert console.get(f"/nodes/{A}/drill?xid=x").status == 400
    assert console.post(f"/nodes/{A}/drill", {"xid": "79", "why": " "}).status == 400


def test_each_act_that_a_page_offers_has_its_page(console: ServedConsole) -> None:
    for kind in ActKind:
        links = re.findall(rf'href="({kind.path}\?[^"]+)"', console.get(f"/nodes/{A}").text)
        assert all(console.get(link).status == 200 for link in links)
