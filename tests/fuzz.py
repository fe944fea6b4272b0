"""`make fuzz`: mutated inputs for everything that reads what others wrote. Each input that breaks a reader is kept.

A reader breaks when it raises what it does not promise, or takes longer than `SLOW_SECONDS` of processor. A run is
repeated by its seed: `make fuzz ARGS="--seed 7 --only job-file"`.
"""

import argparse
import json
import math
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from pydantic import ValidationError

from nodeheal.agent.checks import check, own
from nodeheal.agent.checks.progress import limit_of
from nodeheal.agent.runtime.training_files import records_in, step_in
from nodeheal.agent.runtime.trainings import TrainingHistory, training_of
from nodeheal.api.job_file import JobFileRefused, parse_job_file
from nodeheal.contract.acts import parse_act
from nodeheal.contract.health_event import NodeFact
from nodeheal.contract.training import read_training, write_training
from nodeheal.contract.vocabulary import ActKind
from nodeheal.domain.policy.policy import PolicyRefused, parse_policy
from nodeheal.parsers.all_reduce import parse_all_reduce
from nodeheal.parsers.dcgm_diag import parse_diagnostic
from nodeheal.parsers.dcgm_dmon import read_rows
from nodeheal.parsers.dcgm_health import parse_health
from nodeheal.parsers.efa_tools import parse_efa
from nodeheal.parsers.fi_pingpong import PingpongExit, parse_pingpong
from nodeheal.parsers.host_heat import judge_load, read_host
from nodeheal.parsers.kernel_log import read_findings
from nodeheal.parsers.log_format import LogFormat
from nodeheal.parsers.measures import collective_bandwidth, dcgm_bandwidths, heat
from nodeheal.parsers.neuron_tools import parse_neuron
from nodeheal.parsers.nvidia_smi import parse_nvidia_smi
from nodeheal.parsers.sbatch import doubts_of, parse_script
from nodeheal.parsers.slurm import parse_config, parse_jobs, parse_nodes
from nodeheal.services.notify.layout import plain

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"
KEPT = ROOT / "build" / "fuzz"
SECONDS = 60.0
SLOW_SECONDS = 2.0
LARGEST = 64 * 1024
# What readers of text stumble over: numbers without end, deep nesting, ends of lines, letters of other planes.
TOKENS = (
    *(b"0", b"-1", b"9" * 400, b"0x" + b"f" * 4_000, b"1e999", b"NaN", b"-Infinity", b"1:" * 200 + b"1", b"true"),
    *(b"\0", b"\n", b"\r\n", b"\t", b" " * 500, b"\xff", b"\xe2\x80\xae", b"\xed\xa0\x80", b"\x1b[2J", b"\\ud800"),
    *(b"[" * 500, b'{"a":' * 500, b"}" * 20, b'"', b"'", b"&a [*a]", b"!!python/object:os.system", b"<!DOCTYPE x>"),
    *(b"-" * 500, b"=" * 500, b"|", b"+", b":", b",", b"#", b"%", b"/" * 50, b"../", b"$(x)"),
)

ACTS = [
    b'{"kind": "SUBMIT_JOB", "spec": {"name": "llama", "pool": "demo", "nodes": 2, "image": "a"}}',
    b'{"kind": "STOP_JOB", "job": "llama", "why": "wrong data"}',
    b'{"kind": "ENROLL", "node": "i-0a1", "pool": "demo", "why": "new", "accelerators": 8, "rack": "r7"}',
]
PROGRESS_FILES = [
    b'{"limit_seconds": 60, "step": 2037}',
    b"".join(
        f'{{"step":{n},"at":179606541{n}.5,"step_seconds":0.5,"compute_seconds":0.4,"loss":"nan","saved":1,"pause":"a"}}\n'.encode()
        for n in range(9)
    ),
]
# As sinfo and squeue print them in the format that is asked for, which ends each field with a mark.
SLURM_NODES = b"gpu1|x|10.0.0.7|x|drained*|x|root|x|1772332800|x|nodeheal:inc-1|x|\ng2|x|g2|x|idle|x||x||x|none|x|\n"
SLURM_JOBS = b"12_3|x|FAILED|x|ada|x|1|x|2|x|1|x|gpu|x|4|x|gpu[1-4]|x|7|x|1792|x|100|x|200|x|300|x|None|x|llama|x|\n"


class TooSlow(BaseException):
    """A reader took more than `SLOW_SECONDS` of processor."""


@dataclass(frozen=True)
class Target:
    """One reader, inputs that it takes, and what it may raise."""

    name: str
    read: Callable[[bytes], object]
    seeds: Sequence[bytes]
    refusals: tuple[type[Exception], ...] = ()


@dataclass(frozen=True)
class Broken:
    """An input, and what came of it."""

    target: str
    seed: int
    number: int
    data: bytes
    why: str


def targets() -> list[Target]:
    """Every reader of what a node, a job or a person wrote."""
    events = [
        json.dumps(json.loads(line)["Detail"]).encode()
        for file in (GOLDEN / "agent_events").iterdir()
        for line in file.read_text("utf-8").splitlines()
    ]
    foreign = [file.read_bytes() for file in sorted((GOLDEN / "foreign").glob("*.json"))]
    jobs = [file.read_bytes() for file in sorted((ROOT / "examples").glob("*/job.yaml"))]
    logs = [file.read_bytes() for file in sorted((GOLDEN / "kernel_logs").glob("*.log"))]
    policy = [(ROOT / "sandbox" / "policy.json").read_bytes()]
    scripts = [file.read_bytes() for file in sorted((ROOT / "examples" / "slurm").glob("*.sbatch"))]
    ended = PingpongExit(0)
    every_tool = tools("")
    return [
        Target("dcgm-diag", text(parse_diagnostic), tools("dcgm_diag")),
        Target("dcgm-health", text(parse_health), tools("dcgm_health")),
        Target(
            "dcgm-dmon",
            text(lambda said: list(read_rows(said, (311, 319)))),
            [b"#Entity\nGPU 0  0  4\nGPU 1  N/A  0\n"],
        ),
        Target("nvidia-smi", text(parse_nvidia_smi), tools("nvidia_smi")),
        Target("neuron", text(parse_neuron), tools("neuron")),
        Target("efa", text(parse_efa), [*tools("efa"), *tools("ib")]),
        Target("fi-pingpong", text(lambda said: parse_pingpong(said, said, ended, serves=False)), tools("fi_pingpong")),
        Target("all-reduce", text(lambda said: parse_all_reduce(said, said, ended)), every_tool),
        Target(
            "measures", text(lambda said: (dcgm_bandwidths(said), collective_bandwidth(said), heat(said))), every_tool
        ),
        Target("host-heat", text(lambda said: judge_load(read_host(said), read_host(said[::2]))), tools("ib")),
        Target("kernel-log", kernel_log, logs),
        Target("job-file", parse_job_file, jobs, (JobFileRefused,)),
        Target("act", text(_acts), ACTS, ()),
        Target("policy", text(parse_policy), policy, (PolicyRefused,)),
        Target("events", as_events, events, (ValidationError,)),
        Target("progress", lambda data: (limit_of(data), step_in(data)), PROGRESS_FILES),
        Target("training", _train, PROGRESS_FILES),
        Target(
            "heartbeat-training", text(read_training), [b"llama/2=2037;t=1796065415.6;n=8;s=0.51;l=nan;p=saving,b/1=3"]
        ),
        Target(
            "own-check",
            own.parse_own,
            [b'{"verdict": "FAILED", "code": "full", "component": "/", "reason": "no room"}'],
            (check.CheckBroken,),
        ),
        Target("slurm-nodes", text(lambda said: parse_nodes(said, "|x|")), [SLURM_NODES], (ValueError,)),
        Target(
            "slurm-jobs",
            text(lambda said: list(parse_jobs([said.encode("utf-8", "replace")], "|x|"))),
            [SLURM_JOBS],
            (ValueError,),
        ),
        Target("slurm-config", text(parse_config), [b"SLURM_VERSION = 22.05.8\nTreeWidth = 50\n"], (ValueError,)),
        Target("batch-script", text(lambda said: doubts_of(parse_script(said), [], {})), scripts, (ValueError,)),
        Target("email", text(plain), [*foreign, *logs]),
    ]


def text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    """A reader of text, given bytes as the agent and the command line decode them."""
    return lambda data: read(data.decode("utf-8", "replace"))


def _acts(body: str) -> None:
    """The body at each route, which takes it or refuses it."""
    for kind in ActKind:
        with suppress(ValueError):
            parse_act(kind, body)


def _train(data: bytes) -> None:
    """Two looks at two ranks, as a heartbeat carries what comes of them."""
    history = TrainingHistory()
    for piece in (data[::2], data):
        if ranks := {rank: records for rank in (0, 1) if (records := records_in(piece[rank:]))}:
            history.add(ranks, 0.0)
            sent = training_of("llama/2", ranks, history, 0.0, 0.0)
            if read_training(write_training([sent]))["llama/2"].step != sent.step:
                raise AssertionError("the heartbeat has another step")


def tools(family: str) -> list[bytes]:
    """The recorded outputs of a tool."""
    return [file.read_bytes()[:LARGEST] for file in sorted((GOLDEN / "tools").glob(f"{family}*"))]


def kernel_log(data: bytes) -> None:
    """Each form of log."""
    for form in LogFormat:
        list(read_findings(data.splitlines(keepends=True), form))


def as_events(data: bytes) -> None:
    """Each event that a node may send, of the same bytes. Raises ValidationError where none takes them."""
    refused: list[ValidationError] = []
    kinds = NodeFact.__subclasses__()
    for kind in kinds:
        try:
            kind.model_validate_json(kind.model_validate_json(data).model_dump_json())
        except ValidationError as error:
            refused.append(error)
    if len(refused) == len(kinds):
        raise refused[0]


def mutated(data: bytes, random_: random.Random, others: Sequence[bytes]) -> bytes:
    """The input with one to eight small wounds."""
    for _ in range(random_.randint(1, 8)):
        at, end = sorted((random_.randint(0, len(data)), random_.randint(0, len(data))))
        end = min(end, at + random_.choice((1, 8, 64, 4_096)))
        data = (data[:at] + _instead(data[at:end], random_, others) + data[end:])[:LARGEST]
    return data


def _instead(piece: bytes, random_: random.Random, others: Sequence[bytes]) -> bytes:
    match random_.randrange(6):
        case 0:
            return b""
        case 1:
            return random_.choice(TOKENS)
        case 2:
            return random_.choice(TOKENS) + piece
        case 3:
            return piece * random_.choice((2, 16, 512))
        case 4:
            return random_.randbytes(random_.randint(1, 8))
    other = random_.choice(others)
    return other[: random_.randint(0, len(other))]


def inputs(target: Target, seed: int) -> Iterator[bytes]:
    """Mutations without end; the same for the same seed."""
    random_ = random.Random(f"{target.name} {seed}")
    while True:
        yield mutated(random_.choice(target.seeds), random_, target.seeds)


def why_broken(target: Target, data: bytes) -> str:
    """What is wrong with how the reader took it; empty: nothing."""
    before = signal.signal(signal.SIGVTALRM, _too_slow)
    signal.setitimer(signal.ITIMER_VIRTUAL, SLOW_SECONDS)
    try:
        target.read(data)
    except target.refusals:
        return ""
    except TooSlow:
        return f"more than {SLOW_SECONDS:g} s of processor for {len(data)} bytes"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return ""


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise TooSlow


def fuzz(target: Target, seed: int, seconds: float = math.inf, most: float = math.inf) -> Broken | int:
    """The first input that breaks it; or how many were tried in so many seconds, and no more than `most`."""
    until = time.monotonic() + seconds
    for number, data in enumerate(inputs(target, seed)):
        if number >= most or time.monotonic() > until:
            return number
        if why := why_broken(target, data):
            return Broken(target.name, seed, number, data, why)
    raise AssertionError("inputs have no end")


def main(arguments: Sequence[str]) -> int:
    """Fuzz each target for its share of the time; 1 where one is broken."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"for all targets; default: {SECONDS:g}")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the time")
    parser.add_argument("--only", choices=[one.name for one in targets()], action="append", help="this target; repeat")
    given = parser.parse_args(arguments)
    chosen = [one for one in targets() if not given.only or one.name in given.only]
    is_broken = False
    for target in chosen:
        found = fuzz(target, given.seed, given.seconds / len(chosen))
        if isinstance(found, Broken):
            is_broken = True
            KEPT.mkdir(parents=True, exist_ok=True)
            (kept := KEPT / f"{found.target}-{found.seed}-{found.number}").write_bytes(found.data)
            sys.stdout.write(f"{target.name}: BROKEN by input {found.number} of seed {found.seed}: {found.why}\n")
            sys.stdout.write(f"  kept in {kept.relative_to(ROOT)}\n")
        else:
            sys.stdout.write(f"{target.name}: {found} inputs of seed {given.seed}\n")
    return int(is_broken)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
