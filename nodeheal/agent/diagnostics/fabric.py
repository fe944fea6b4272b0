"""The way between two nodes: one serves, the other connects, and libfabric plays ping-pong over the fabric."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from nodeheal.agent.diagnostics.bench import Bench, Output
from nodeheal.contract.evidence.efa_tools import parse_efa
from nodeheal.contract.evidence.fi_pingpong import Ended, is_nobody_there, parse_pingpong
from nodeheal.contract.evidence.finding import Report
from nodeheal.contract.evidence.tool_report import unknown
from nodeheal.contract.vocabulary import FabricRole, Verdict

TOOL, PROVIDER = "fi_pingpong", "efa"
PROVIDER_SECONDS = 30.0
AGAIN_SECONDS = 1.0
# Of each size: its own ten are over before a link has warmed up. A thousand of 1 MiB take a second or two.
MESSAGES = 1000


@dataclass(frozen=True)
class Way:
    """Which side this node is, and what is asked of the way."""

    role: FabricRole
    peer: str
    port: int
    seconds: float
    least_mb_per_s: float = 0.0

    @property
    def command(self) -> list[str]:
        """Reliable datagrams are what EFA is for. Without -c: to compare bytes costs more than to send them."""
        common = [TOOL, "-p", PROVIDER, "-e", "rdm", "-I", str(MESSAGES)]
        if self.role is FabricRole.SERVE:
            return [*common, "-B", str(self.port)]
        return [*common, "-P", str(self.port), self.peer]


def check(
    bench: Bench,
    way: Way,
    monotonic: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> tuple[Report, Output]:
    """Whether the provider is there; then the test. Both within the way's seconds."""
    ends_at = monotonic() + way.seconds
    provided = bench.run(["fi_info", "-p", PROVIDER], min(PROVIDER_SECONDS, way.seconds))
    report = provided.no_answer("fi_info") or parse_efa(provided.text + provided.errors)
    if report.verdict is not Verdict.OK:
        return report, provided
    while True:
        left = max(ends_at - monotonic(), AGAIN_SECONDS)
        output = bench.run(way.command, left)
        is_early = way.role is FabricRole.CONNECT and is_nobody_there(f"{output.text}\n{output.errors}")
        if not is_early or ends_at - monotonic() <= AGAIN_SECONDS:
            return _judge(output, way), output
        pause(AGAIN_SECONDS)


def _judge(output: Output, way: Way) -> Report:
    ran = output.ran
    if ran.error and not ran.has_hung:
        return unknown(f"{TOOL} cannot be run: {ran.error}")
    ended = Ended(ran.exit_code or 0, way.seconds if ran.has_hung else 0.0)
    return parse_pingpong(output.text, output.errors, ended, way.role is FabricRole.SERVE, way.least_mb_per_s)
