"""A tool whose output has no bound is read as it prints, and ends with its reader or at its deadline."""

import time
from itertools import islice
from pathlib import Path

import pytest

from nodeheal.agent.runtime.stream import NotRun, stream
from tests.support.agent_fakes import eventually

SECONDS = 10.0


def test_what_is_printed_comes_whole() -> None:
    parts = list(stream(["sh", "-c", "seq 100000"], SECONDS))

    assert b"".join(parts).split() == [str(number).encode() for number in range(1, 100_001)]
    assert len(parts) > 1


@pytest.mark.parametrize(
    ("script", "why", "errors"),
    [
        ("echo one; echo broken >&2; exit 3", "it ended with 3", "broken"),
        ("echo one; echo waits >&2; sleep 60", "no answer within 0.5 s", "waits"),
        ("echo one; exec >&-; sleep 60", "no answer within 0.5 s", ""),
    ],
)
def test_a_tool_that_fails_or_hangs_is_told_after_what_it_has_printed(script: str, why: str, errors: str) -> None:
    printed = bytearray()

    with pytest.raises(NotRun, match=why) as failed:
        for part in stream(["sh", "-c", script], 0.5):
            printed += part

    assert (bytes(printed), failed.value.errors) == (b"one\n", errors)


def test_a_tool_that_is_missing_is_named() -> None:
    with pytest.raises(NotRun, match="not installed"):
        list(stream(["no-such-tool"], SECONDS))


def test_a_tool_that_nobody_reads_any_more_is_ended() -> None:
    began = time.monotonic()
    output = stream(["sh", "-c", "echo $$; exec yes"], SECONDS)

    pid = int(b"".join(islice(output, 1)).split()[0])
    output.close()  # type: ignore[attr-defined]

    eventually(lambda: not Path(f"/proc/{pid}").exists())
    assert time.monotonic() - began < SECONDS
