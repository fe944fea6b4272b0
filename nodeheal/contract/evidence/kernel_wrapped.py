"""Takes off what tools put around the lines of a kernel log: for a log that a person has put together. Pure, linear.

An agent never reads so: a line is believed by how its message begins, and a program can write such a line, too.
"""

import json
import re
from collections.abc import Iterator

_DECODER = json.JSONDecoder()
_DEEPEST = 6  # host, file, number, stamp, stream and quote
_ANSI = re.compile(r"\x1b\[[0-9;]{0,16}[A-Za-z]")  # dmesg -L=always, journalctl with colours
# A field that holds a message: journalctl -o json-pretty, dmesg -J, fluent-bit and Docker, aws logs filter-log-events.
_JSON_KEY = re.compile(r'"(?:MESSAGE|message|msg|log)"\s{0,4}:\s{0,4}(?=")')
_STAMP = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_WRAPPER = re.compile(
    "|".join(
        (
            r"\s+",
            r"[>|] ?",  # a quote
            r"MESSAGE=",  # journalctl -o export and -o verbose
            # journalctl -o short-delta
            r"\[ {0,12}\d{1,12}\.\d{1,9}(?: < {0,12}\d{1,12}\.\d{1,9}[ *]>| {16})\] \S{1,255} kernel: ?",
            r"\S{3} [ \d]\d \d\d:\d\d:\d\d \S{1,255} kern\.[a-z]{3,7} kernel: ?",  # busybox
            rf"kern: {{1,8}}[a-z]{{3,7}}: \[{_STAMP}\]: ?",  # talosctl dmesg, behind its node
            rf"{_STAMP}[ \t]+",  # CloudWatch's stamp, or a second one
            r"[\w.@%+-]{0,64}/[\w./@%+-]{1,400}:(?:\d{1,9}[:-])?",  # grep: the file, and the line's number
            r"[\w@%+-]{1,200}\.(?:log|txt|out|\d{1,8}|gz)[\w.-]{0,40}:(?:\d{1,9}[:-])?",
            r"\d{1,9}[:-](?!\d\d)",  # grep -n
            r"[A-Za-z0-9][\w.-]{0,254}: ",  # pdsh, clush, talosctl: the host
        )
    )
)
# aws logs tail: behind the stamp stands the name of a stream.
_STREAM = re.compile(rf"{_STAMP}[ \t]+[\w./:@\[\]$-]{{1,512}}[ \t]+")


def unwrapped(line: str) -> Iterator[str]:
    """What may be a line of the kernel log inside this one: with less and less around it."""
    rest = _ANSI.sub("", line)
    if rest != line:
        yield rest
    for _ in range(_DEEPEST):
        stream = _STREAM.match(rest)
        if stream is not None:
            yield rest[stream.end() :]
        inner = _inner(rest)
        if inner is None:
            return
        rest = inner
        yield rest


def _inner(line: str) -> str | None:
    key = _JSON_KEY.search(line)
    if key is not None:
        try:
            message, _ = _DECODER.raw_decode(line, key.end())
        except ValueError:
            return None
        return str(message).partition("\n")[0]
    found = _WRAPPER.match(line)
    return line[found.end() :] if found else None
