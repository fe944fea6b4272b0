"""Tests the network between two nodes: one serves, the other connects.

libfabric runs a ping-pong over every EFA card of the nodes at once. On request, NCCL then runs an all-reduce over the
GPUs of both.

The first cards use the given port, NCCL the next port, and the other cards the ports after that. Where the other node's
agent is older and tests the first card only, only that card is judged.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from nodeheal.agent.diagnostics.bench import Bench, Output
from nodeheal.contract.vocabulary import FabricRole, Verdict
from nodeheal.parsers.all_reduce import parse_all_reduce
from nodeheal.parsers.efa_tools import parse_efa, reliable_domains
from nodeheal.parsers.fi_pingpong import PingpongExit, is_nobody_there, parse_pingpong, read_rows
from nodeheal.parsers.finding import ToolReport
from nodeheal.parsers.tool_report import GRAVITY, unknown, worst_of

TOOL, PROVIDER = "fi_pingpong", "efa"
PROVIDER_SECONDS = 30.0
AGAIN_SECONDS = 1.0
TOLD_CARDS = 3  # the number of failed cards that are named
# Messages of each size: the tool's default of ten ends before a link has warmed up. A thousand of 1 MiB take a second
# or two.
MESSAGES = 1000
# Where AWS's images install NCCL, its plug-in for EFA, and CUDA; an SSM command has no such environment.
LIBRARIES = ("/opt/amazon/ofi-nccl/lib", "/opt/amazon/efa/lib", "/usr/local/cuda/lib", "/usr/local/cuda/lib64")


@dataclass(frozen=True)
class FabricTest:
    """The side of this node, and the parameters of the test."""

    role: FabricRole
    peer: str
    port: int
    seconds: float
    least_mb_per_s: float = 0.0
    all_reduce: bool = False
    least_all_reduce_mb_per_s: float = 0.0
    domain: str = ""  # the card's name in libfabric; empty: libfabric's default

    def over(self, number: int, domain: str) -> "FabricTest":
        """Return the test of one card. Both nodes number their cards in libfabric's order."""
        return replace(self, domain=domain, port=self.port + (number + 1 if number else 0))

    def reduce(self, seconds: float) -> list[str]:
        """Return the all-reduce command, on the next port: the serving node listens there only after the first test."""
        libraries = ":".join(filter(None, (os.environ.get("LD_LIBRARY_PATH", ""), *LIBRARIES)))
        command = ["env", f"LD_LIBRARY_PATH={libraries}", sys.executable, "-m", "nodeheal.agent.diagnostics.all_reduce"]
        return [*command, "--peer", self.peer, "--port", str(self.port + 1), "--seconds", f"{seconds:g}"]

    @property
    def command(self) -> list[str]:
        """Return the ping-pong command. It uses reliable datagrams, as EFA does. Without -c: comparing bytes costs more
        than sending them.
        """
        card = ("-d", self.domain) if self.domain else ()
        common = [TOOL, "-p", PROVIDER, "-e", "rdm", "-I", str(MESSAGES), *card]
        if self.role is FabricRole.SERVE:
            return [*common, "-B", str(self.port)]
        return [*common, "-P", str(self.port), self.peer]


def check(
    bench: Bench,
    fabric_test: FabricTest,
    monotonic: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> tuple[ToolReport, Output]:
    """Check the provider, then run the ping-pong, then the all-reduce if requested, all within the test's seconds."""
    ends_at = monotonic() + fabric_test.seconds
    report, output = _play(bench, fabric_test, ends_at, monotonic, pause)
    if report.verdict is not Verdict.OK or not fabric_test.all_reduce:
        return report, output
    left = max(ends_at - monotonic(), AGAIN_SECONDS)
    summed = bench.run(fabric_test.reduce(left), left)
    return worst_of([report, _judge_sum(summed, fabric_test, left)]), summed


def _judge_sum(output: Output, fabric_test: FabricTest, seconds: float) -> ToolReport:
    if output.ran.error and not output.ran.has_hung:
        return unknown(f"the all-reduce cannot be run: {output.ran.error}")
    ended = PingpongExit(output.ran.exit_code or 0, seconds if output.ran.has_hung else 0.0)
    return parse_all_reduce(output.text, output.errors, ended, fabric_test.least_all_reduce_mb_per_s)


def _play(
    bench: Bench,
    fabric_test: FabricTest,
    ends_at: float,
    monotonic: Callable[[], float],
    pause: Callable[[float], None],
) -> tuple[ToolReport, Output]:
    provided = bench.run(["fi_info", "-p", PROVIDER], min(PROVIDER_SECONDS, fabric_test.seconds))
    report = provided.no_answer("fi_info") or parse_efa(provided.text + provided.errors)
    if report.verdict is not Verdict.OK:
        return report, provided
    domains = reliable_domains(provided.text)
    if len(domains) < 2:
        output = _play_card(bench, fabric_test, ends_at, monotonic, pause)
        return _judge(output, fabric_test), output
    ways = [fabric_test.over(number, domain) for number, domain in enumerate(domains)]
    benches = [replace(bench, folder=bench.folder / way.domain) for way in ways]
    for card in benches:
        card.folder.mkdir(exist_ok=True)
    with ThreadPoolExecutor(len(ways)) as cards:
        played = cards.map(lambda card, over: _play_card(card, over, ends_at, monotonic, pause), benches, ways)
        outputs = list(played)
    return _judge_cards(ways, outputs)


def _play_card(
    bench: Bench,
    fabric_test: FabricTest,
    ends_at: float,
    monotonic: Callable[[], float],
    pause: Callable[[float], None],
) -> Output:
    while True:
        left = max(ends_at - monotonic(), AGAIN_SECONDS)
        output = bench.run(fabric_test.command, left)
        is_early = fabric_test.role is FabricRole.CONNECT and is_nobody_there(f"{output.text}\n{output.errors}")
        if not is_early or ends_at - monotonic() <= AGAIN_SECONDS:
            return output
        pause(AGAIN_SECONDS)


def _judge_cards(ways: Sequence[FabricTest], outputs: Sequence[Output]) -> tuple[ToolReport, Output]:
    """Merge the cards' reports into one: its verdict is the worst, its output that of the worst card."""
    reports = [_judge(output, fabric_test) for fabric_test, output in zip(ways, outputs, strict=True)]
    if reports[0].verdict is Verdict.OK and all(map(_is_alone, ways[1:], outputs[1:])):
        reason = f"{reports[0].reason}, over the first of {len(ways)} EFA cards: the other node tests no more"
        return replace(reports[0], reason=reason), outputs[0]
    worst = max(range(len(ways)), key=lambda at: (GRAVITY.index(reports[at].verdict), -_speed(reports[at])))
    if reports[worst].verdict is Verdict.OK:
        reason = f"{len(ways)} EFA cards, the slowest {ways[worst].domain}: {reports[worst].reason}"
    else:
        bad = [at for at, report in enumerate(reports) if report.verdict is reports[worst].verdict]
        reason = f"{len(bad)} of {len(ways)} EFA cards: " + "; ".join(
            f"{ways[at].domain}: {reports[at].reason}" for at in bad[:TOLD_CARDS]
        )
    return replace(reports[worst], reason=reason), outputs[worst]


def _speed(report: ToolReport) -> float:
    return report.measured.get("fabric_mb_per_s", 0.0)


def _is_alone(fabric_test: FabricTest, output: Output) -> bool:
    """Whether the other node did not connect. The two connect by TCP, which works with a broken card; then the
    connecting node sees that no data arrives.
    """
    if fabric_test.role is FabricRole.CONNECT:
        return is_nobody_there(f"{output.text}\n{output.errors}")
    return output.ran.has_hung and not read_rows(output.text)


def _judge(output: Output, fabric_test: FabricTest) -> ToolReport:
    ran = output.ran
    if ran.error and not ran.has_hung:
        return unknown(f"{TOOL} cannot be run: {ran.error}")
    ended = PingpongExit(ran.exit_code or 0, fabric_test.seconds if ran.has_hung else 0.0)
    return parse_pingpong(
        output.text, output.errors, ended, fabric_test.role is FabricRole.SERVE, fabric_test.least_mb_per_s
    )
