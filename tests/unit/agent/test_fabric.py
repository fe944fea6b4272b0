"""`nodeheal-agent run fabric`, run as the SSM document runs it, with tools that answer what the test wants."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from nodeheal.agent.diagnostics import fabric
from nodeheal.agent.diagnostics.bench import Bench, Output
from nodeheal.agent.diagnostics.fabric import FabricTest
from nodeheal.agent.node_commands import fabric as fabric_order
from nodeheal.agent.runtime import probe
from nodeheal.contract.fabric import NO_PEER, PEER_PATTERN, PORT, SECONDS, FabricAnswer, judge_pair
from nodeheal.contract.vocabulary import FabricRole, Verdict
from nodeheal.parsers.finding import ToolReport
from tests.support.agent_commands import free_port, order
from tests.support.agent_fakes import FakeEventBridge, NodeFolder
from tests.support.goldens import efa_cards, golden

DOCUMENT = Path(__file__).parents[3] / "packaging" / "ssm" / "test-fabric.json"
PEER = "10.0.0.8"


EXPIRES_AT = "4070908800"  # 2099
# As fi_pingpong does: the control channel is TCP; who serves waits for one, who connects fails if nobody is there.
FI_PINGPONG = f"""#!{sys.executable}
import socket, sys
arguments = sys.argv[1:]
if "-B" in arguments:
    listener = socket.socket()
    try:
        listener.bind(("127.0.0.1", int(arguments[arguments.index("-B") + 1])))
    except OSError:
        sys.exit("bind(): util/pingpong.c:501, ret=-98 (Address already in use)")
    listener.listen()
    other, _ = listener.accept()
    table = "server"
else:
    other = socket.socket()
    try:
        other.connect((arguments[-1], int(arguments[arguments.index("-P") + 1])))
    except OSError:
        sys.exit("[error] util/pingpong.c:448: failed to connect: Connection refused")
    table = "client"
print(open({str(Path(__file__).parents[2] / "golden" / "tools")!r} + "/fi_pingpong_" + table + "_healthy.txt").read())
"""


@dataclass
class Nodes:
    """Tools on the PATH, and the document that uses them."""

    node: NodeFolder
    tools: Path

    def __post_init__(self) -> None:
        self.tools.mkdir()
        self.tool("nodeheal-agent", f'#!/bin/sh\nexec {sys.executable} -m nodeheal.agent.main "$@"\n')
        self.prints("fi_info", efa_cards(1))

    def tool(self, name: str, script: str) -> None:
        (self.tools / name).write_text(script)
        (self.tools / name).chmod(0o755)

    def prints(self, name: str, text: str, exit_code: int = 0) -> None:
        (self.tools / f"{name}.txt").write_text(text)
        self.tool(name, f"#!/bin/sh\ncat {self.tools}/{name}.txt >&2; cat {self.tools}/{name}.txt; exit {exit_code}\n")

    def start(self, **parameters: Any) -> "subprocess.Popen[str]":
        command = {"RequestId": "pre-1/serve", "BootId": "boot-1", "ExpiresAt": EXPIRES_AT}
        command = {name: parameters.pop(name, value) for name, value in command.items()}
        asked = {**order(**parameters).parameters(), **command}
        document = json.loads(DOCUMENT.read_text())
        assert sorted(document["parameters"]) == sorted(asked)
        script = "\n".join(document["mainSteps"][0]["inputs"]["runCommand"])
        for name, value in asked.items():
            pattern = document["parameters"][name].get("allowedPattern", ".")
            assert re.search(pattern, value), name
            script = script.replace("{{ " + name + " }}", value)
        return subprocess.Popen(
            ["sh", "-c", script],
            env={**self.node.environment(), "PATH": f"{self.tools}:{os.defpath}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, **parameters: Any) -> FabricAnswer:
        return answer_of(self.start(**parameters))


def answer_of(process: "subprocess.Popen[str]") -> FabricAnswer:
    said, complaints = process.communicate(timeout=60)
    assert process.returncode == 0, complaints
    return FabricAnswer.model_validate_json(said.splitlines()[-1])


@pytest.fixture
def nodes(node: NodeFolder) -> Nodes:
    return Nodes(node, node.directory / "tools")


def test_two_nodes_find_one_another_and_both_say_ok(nodes: Nodes, bus: FakeEventBridge) -> None:
    nodes.tool("fi_pingpong", FI_PINGPONG)
    port = free_port()
    connecting = nodes.start(role=FabricRole.CONNECT, RequestId="pre-1/connect", peer="127.0.0.1", port=port)
    time.sleep(1)  # it is there first, and tries again

    serving = nodes.run(port=port)

    pair = judge_pair(serving, answer_of(connecting))
    assert pair.verdict is Verdict.OK, pair.reason
    assert serving.measured["fabric_mb_per_s"] > 2000
    reported = {event["request_id"]: event["verdict"] for event in bus.details("Diagnostics Finished")}
    assert reported == {"pre-1/serve": "OK", "pre-1/connect": "OK"}


def test_nobody_serves(nodes: Nodes, bus: FakeEventBridge) -> None:
    nodes.tool("fi_pingpong", FI_PINGPONG)

    answer = nodes.run(role=FabricRole.CONNECT, peer="127.0.0.1", port=free_port(), seconds=5)

    assert answer.verdict is Verdict.UNKNOWN
    assert "cannot be reached, or does not serve" in answer.reason


def test_nobody_comes(nodes: Nodes, bus: FakeEventBridge) -> None:
    nodes.tool("fi_pingpong", FI_PINGPONG)

    answer = nodes.run(port=free_port(), seconds=5)

    assert (answer.verdict, answer.failed_tests) == (Verdict.UNKNOWN, ())
    assert "no node connected within 5 s" in answer.reason


def test_a_port_that_is_taken_is_told(nodes: Nodes, bus: FakeEventBridge) -> None:
    nodes.tool("fi_pingpong", FI_PINGPONG)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()

        answer = nodes.run(port=other.getsockname()[1])

    assert answer.verdict is Verdict.UNKNOWN
    assert "the port is taken on this node" in answer.reason


def test_a_way_that_is_too_slow_has_failed(nodes: Nodes, bus: FakeEventBridge) -> None:
    nodes.prints("fi_pingpong", golden("fi_pingpong_client_healthy.txt"))

    answer = nodes.run(role=FabricRole.CONNECT, peer=PEER, min_mb_per_second=5000)

    assert (answer.verdict, answer.failed_tests) == (Verdict.FAILED, ("fabric_bandwidth",))
    [event] = bus.details("Diagnostics Finished")
    assert (event["verdict"], event["measured"]["fabric_mb_per_s"]) == ("FAILED", 2613.6)


def test_a_node_without_the_tool_proves_nothing(nodes: Nodes, bus: FakeEventBridge) -> None:
    answer = nodes.run()

    assert (answer.verdict, answer.reason) == (Verdict.UNKNOWN, "fi_pingpong cannot be run: not installed")


@pytest.mark.parametrize(("boot_id", "expires_at"), [("boot-0", EXPIRES_AT), ("boot-1", "1767225600")])
def test_a_stale_order_is_refused_and_not_answered(
    nodes: Nodes, bus: FakeEventBridge, boot_id: str, expires_at: str
) -> None:
    process = nodes.start(BootId=boot_id, ExpiresAt=expires_at)

    _, complaints = process.communicate(timeout=60)

    assert process.returncode == 3
    assert "test of the fabric refused" in complaints
    assert bus.details("Diagnostics Finished") == []


@pytest.mark.parametrize(
    "wrong", [["--peer", "-h"], ["--peer", "a b"], ["--peer", "::1"], ["--seconds", "nan"], ["--seconds", "0"]]
)
def test_what_cannot_be_asked_is_refused_by_name(nodes: Nodes, wrong: Sequence[str]) -> None:
    least = ["--peer", NO_PEER, "--request-id", "r", "--boot-id", "boot-1", "--expires-at", "9999999999"]

    ended = subprocess.run(
        [sys.executable, "-m", "nodeheal.agent.main", "run", "fabric", *least, *wrong],
        env=nodes.node.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 64
    assert wrong[0] in ended.stderr


# The order -----------------------------------------------------------------------------------------------------------


def test_the_agent_and_the_contract_agree() -> None:
    assert (fabric_order.FABRIC_PORT, fabric_order.FABRIC_SECONDS) == (PORT, SECONDS)
    assert fabric_order._PEER.pattern == PEER_PATTERN.strip("^$")


@pytest.mark.parametrize("wrong", [{"peer": PEER}, {"role": FabricRole.CONNECT}, {"peer": "-x"}, {"port": 80}])
def test_an_order_that_makes_no_sense_cannot_be_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        order(**wrong)


def test_the_document_refuses_a_role_that_does_not_fit_its_peer(nodes: Nodes) -> None:
    script = "\n".join(json.loads(DOCUMENT.read_text())["mainSteps"][0]["inputs"]["runCommand"])
    asked = {**order().parameters(), "Role": "CONNECT"}
    for name, value in asked.items():
        script = script.replace("{{ " + name + " }}", value)

    ended = subprocess.run(
        ["sh", "-c", script], env={"PATH": f"{nodes.tools}:{os.defpath}"}, capture_output=True, text=True, check=False
    )

    assert (ended.returncode, ended.stderr) == (64, "SERVE takes no Peer, CONNECT needs one\n")


def said(verdict: Verdict) -> FabricAnswer:
    return FabricAnswer(request_id="r", verdict=verdict, reason=f"it is {verdict}")


@pytest.mark.parametrize(
    ("serving", "connecting", "verdict"),
    [
        (Verdict.OK, Verdict.OK, Verdict.OK),
        (Verdict.OK, Verdict.FAILED, Verdict.FAILED),
        (Verdict.UNKNOWN, Verdict.FAILED, Verdict.FAILED),
        (Verdict.OK, Verdict.UNKNOWN, Verdict.UNKNOWN),
        (Verdict.OK, None, Verdict.UNKNOWN),
        (None, None, Verdict.UNKNOWN),
    ],
)
def test_a_pair_is_as_good_as_both_say(serving: Verdict | None, connecting: Verdict | None, verdict: Verdict) -> None:
    pair = judge_pair(said(serving) if serving else None, said(connecting) if connecting else None)

    assert pair.verdict is verdict
    assert ("no answer" in pair.reason) == (serving is None or connecting is None)


# The test itself ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FakeBench(Bench):
    """A bench whose tools answer one after the other, the last one for ever."""

    answers: dict[str, list[Output]] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)

    def run(self, command: Sequence[str], seconds: float) -> Output:
        self.ran.append(" ".join(command))
        answers = self.answers[command[0]]
        return answers.pop(0) if len(answers) > 1 else answers[0]


def says(name: str, exit_code: int = 0, ran: probe.Ran | None = None) -> Output:
    return Output(golden(name) if name else "", "", ran or probe.Ran(1.0, exit_code))


def bench(provider: str, *pingpong: Output) -> FakeBench:
    text = efa_cards(1) if provider == "efa_fi_info_healthy.txt" else golden(provider)
    provided = Output(text, "", probe.Ran(1.0, 0))
    return FakeBench(Path("unused"), 1, 0, answers={"fi_info": [provided], "fi_pingpong": list(pingpong)})


CONNECT = FabricTest(FabricRole.CONNECT, PEER, PORT, 60.0)


def test_without_the_provider_nothing_is_played() -> None:
    made = bench("efa_fi_info_none_sick.txt")

    report, _ = fabric.check(made, CONNECT)

    assert (report.verdict, report.failed_tests) == (Verdict.FAILED, ("NO_EFA_PROVIDER",))
    assert made.ran == ["fi_info -p efa"]


def test_who_connects_tries_again_until_the_other_serves() -> None:
    refused = says("fi_pingpong_refused.txt", 1)
    made = bench("efa_fi_info_healthy.txt", refused, refused, says("fi_pingpong_client_healthy.txt"))
    pauses: list[float] = []

    report, _ = fabric.check(made, CONNECT, lambda: sum(pauses), pauses.append)

    assert report.verdict is Verdict.OK
    assert made.ran[1:] == ["fi_pingpong -p efa -e rdm -I 1000 -P 47592 10.0.0.8"] * 3


def test_it_gives_up_when_its_seconds_are_over() -> None:
    made = bench("efa_fi_info_healthy.txt", says("fi_pingpong_refused.txt", 1))
    pauses: list[float] = []

    report, _ = fabric.check(made, CONNECT, lambda: sum(pauses), pauses.append)

    assert report.verdict is Verdict.UNKNOWN
    assert 58 <= sum(pauses) <= 60


def test_what_has_failed_is_not_tried_again() -> None:
    made = bench("efa_fi_info_healthy.txt", says("fi_pingpong_broken_sick.txt", 1))

    report, _ = fabric.check(made, CONNECT, lambda: 0.0, lambda _: None)

    assert report.verdict is Verdict.FAILED
    assert len(made.ran) == 2


def test_a_way_that_hangs_has_failed() -> None:
    hung = says("", ran=probe.Ran(60.0, -9, error="no answer within 60 s"))

    report, _ = fabric.check(bench("efa_fi_info_healthy.txt", hung), CONNECT, lambda: 0.0, lambda _: None)

    assert (report.verdict, report.failed_tests) == (Verdict.FAILED, ("timeout",))


# More cards than one --------------------------------------------------------------------------------------------------


def test_every_card_of_two_nodes_is_tested(nodes: Nodes, bus: FakeEventBridge) -> None:
    nodes.tool("fi_pingpong", FI_PINGPONG)
    nodes.prints("fi_info", efa_cards(3))
    port = free_port()
    connecting = nodes.start(role=FabricRole.CONNECT, RequestId="pre-1/connect", peer="127.0.0.1", port=port)

    serving = nodes.run(port=port)

    connected = answer_of(connecting)
    assert (serving.verdict, connected.verdict) == (Verdict.OK, Verdict.OK), (serving.reason, connected.reason)
    assert "3 EFA cards, the slowest rdmap79s0-rdm" in connected.reason


@dataclass(frozen=True)
class CardBench(Bench):
    """A bench of three cards, each with its own answer."""

    answers: dict[str, Output] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)

    def run(self, command: Sequence[str], seconds: float) -> Output:
        self.ran.append(" ".join(command))
        if command[0] == "fi_info":
            return Output(efa_cards(3), "", probe.Ran(1.0, 0))
        return self.answers.get(command[command.index("-d") + 1], says("fi_pingpong_client_healthy.txt"))


def played(folder: Path, role: FabricRole = FabricRole.CONNECT, **answers: Output) -> tuple[CardBench, ToolReport]:
    made = CardBench(folder, 1, 0, answers={f"{name}-rdm": answer for name, answer in answers.items()})
    seconds: list[float] = []
    way = FabricTest(role, PEER, PORT, 60.0)
    report, _ = fabric.check(made, way, lambda: sum(seconds), lambda pause: seconds.append(pause * 30))
    return made, report


def test_cards_meet_at_ports_of_their_own_and_leave_one_to_nccl(tmp_path: Path) -> None:
    made, _ = played(tmp_path)

    assert sorted(made.ran[1:]) == [
        f"fi_pingpong -p efa -e rdm -I 1000 -d {domain} -P {port} 10.0.0.8"
        for domain, port in (("rdmap79s0-rdm", 47592), ("rdmap80s0-rdm", 47594), ("rdmap96s0-rdm", 47595))
    ]


def test_one_card_that_is_broken_is_found_and_named(tmp_path: Path) -> None:
    _, report = played(tmp_path, rdmap96s0=says("fi_pingpong_broken_sick.txt", 1))

    assert (report.verdict, report.failed_tests) == (Verdict.FAILED, ("fabric",))
    assert report.reason.startswith("1 of 3 EFA cards: rdmap96s0-rdm: it broke off")


def test_one_card_that_the_other_node_does_not_test_is_no_proof(tmp_path: Path) -> None:
    _, report = played(tmp_path, rdmap96s0=says("fi_pingpong_refused.txt", 1))

    assert (report.verdict, "1 of 3 EFA cards: rdmap96s0-rdm" in report.reason) == (Verdict.UNKNOWN, True)


def hung() -> Output:
    return Output("", "", probe.Ran(60.0, -9, error="no answer within 60 s"))


@pytest.mark.parametrize(
    ("role", "nobody"),
    [(FabricRole.CONNECT, says("fi_pingpong_refused.txt", 1)), (FabricRole.SERVE, hung())],
)
def test_a_node_whose_agent_tests_one_card_only_is_tested_over_that_one(
    tmp_path: Path, role: FabricRole, nobody: Output
) -> None:
    _, report = played(tmp_path, role, rdmap80s0=nobody, rdmap96s0=nobody)

    assert report.verdict is Verdict.OK
    assert "over the first of 3 EFA cards: the other node tests no more" in report.reason


def test_cards_over_which_nothing_comes_through_have_failed_however_many_they_are(tmp_path: Path) -> None:
    _, report = played(tmp_path, rdmap80s0=hung(), rdmap96s0=hung())

    assert (report.verdict, report.failed_tests) == (Verdict.FAILED, ("timeout",))
    assert report.reason.startswith("2 of 3 EFA cards: rdmap80s0-rdm: nothing came through")


def test_the_slowest_card_decides(tmp_path: Path) -> None:
    slow = says("fi_pingpong_small_healthy.txt")
    _, report = played(tmp_path, rdmap80s0=slow)

    assert report.verdict is Verdict.OK
    assert "the slowest rdmap80s0-rdm" in report.reason
    assert report.measured["fabric_mb_per_s"] < 2613.6
