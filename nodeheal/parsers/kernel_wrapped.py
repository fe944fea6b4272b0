"""Removes what tools put around the lines of a kernel log, for logs that a person has collected. Pure, linear.

An agent never uses it: a line counts by the beginning of its message, and a program can write such a line, too.
"""

import json
import re
from collections.abc import Iterator

from nodeheal.parsers.kernel_header import WALL_TIMESTAMP, host_of_tagged_line

_DECODER = json.JSONDecoder()
_DEEPEST = 6  # host, file, number, stamp, stream and quote
_ANSI = re.compile(r"\x1b\[[0-9;]{0,16}[A-Za-z]")  # dmesg -L=always, journalctl with colours
# A field that holds a message: journalctl -o json-pretty, dmesg -J, fluent-bit and Docker, aws logs filter-log-events.
_JSON_KEY = re.compile(r'"(?:MESSAGE|message|msg|log)"\s{0,4}:\s{0,4}(?=")')
# The node of the line.
_JSON_HOST = re.compile(r'"(?:_HOSTNAME|hostname|host|logStreamName)"\s{0,4}:\s{0,4}"([^"\\]{1,512})"')
_STAMP = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_WRAPPER = re.compile(
    "|".join(
        (
            r"\s+",
            r"[>|] ?",  # a quote
            r"MESSAGE=",  # journalctl -o export and -o verbose
            rf"{WALL_TIMESTAMP} (?=kernel: )",  # a syslog daemon that writes no host
            # journalctl -o short-delta
            r"\[ {0,12}\d{1,12}\.\d{1,9}(?: < {0,12}\d{1,12}\.\d{1,9}[ *]>| {16})\] (?P<of_delta>\S{1,255}) kernel: ?",
            r"\S{3} [ \d]\d \d\d:\d\d:\d\d (?P<of_busybox>\S{1,255}) kern\.[a-z]{3,7} kernel: ?",  # busybox
            rf"kern: {{1,8}}[a-z]{{3,7}}: \[{_STAMP}\]: ?",  # talosctl dmesg, behind its node
            rf"{_STAMP}[ \t]+",  # CloudWatch's stamp, or a second one
            r"(?P<path>[\w.@%+-]{0,64}/[\w./@%+-]{1,400}):(?:\d{1,9}[:-])?",  # grep: the file, and the line's number
            r"(?P<file>[\w@%+-]{1,200}\.(?:log|txt|out|\d{1,8}|gz)[\w.-]{0,40}):(?:\d{1,9}[:-])?",
            rf"\[{_STAMP}\] ?",
            r"\[(?=[^\]]{0,256}[A-Za-z])(?P<bracket>[^\]]{1,256})\] ?",  # kubectl logs --prefix: [pod/llama-0/trainer]
            r"(?P<service>[\w.-]{1,128}) {1,32}\| ?",  # docker compose logs
            r"(?:stdout|stderr) [FP] ",  # a container runtime's file, behind its stamp
            r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} {1,8}\d{1,9} [\w./-]{1,128}:\d{1,6}\] ",  # klog
            r"(?:\w{1,32}=(?:\"[^\"]{0,128}\"|[^\s\"]{1,128}) ){1,8}(?:msg|message|log)=\"?",  # logfmt
            # stern and kubetail: a pod, whose name has a dash and a digit, and its container
            r"(?=[a-z.-]{0,252}\d)(?=[a-z0-9.]{0,252}-)(?P<pod>[a-z0-9.-]{3,253}) (?:\u203a )?[a-z][a-z0-9-]{0,62} ",
            r"\d{1,9}[:-](?!\d\d)",  # grep -n
            r"(?P<host>[A-Za-z0-9][\w.-]{0,254}): ",  # pdsh, clush, talosctl: the host
        )
    )
)
# aws logs tail: the name of a stream follows the stamp.
_STREAM = re.compile(rf"{_STAMP}[ \t]+(?!\[|{_STAMP})(?P<stream>[\w./:@\[\]$-]{{1,512}})[ \t]+")


def unwrapped(line: str) -> Iterator[tuple[str, str]]:
    """Yield possible kernel lines inside this one, with fewer and fewer wrappers, and the hosts, files and streams in
    them.
    """
    rest, named = _ANSI.sub("", line), ""
    if rest != line:
        yield rest, named
    for _ in range(_DEEPEST):
        stream = _STREAM.match(rest)
        if stream is not None:
            yield rest[stream.end() :], f"{named} {stream['stream']}"
        inner = _inner(rest)
        if inner is None:
            return
        rest, name = inner
        named = f"{named} {name}"
        yield rest, named


def origin_of(line: str, message: str) -> str:
    """Return the log of a line with this message, as far as it is named: equal for lines of one log."""
    in_json = _JSON_HOST.search(line)
    candidates = [(rest, named) for rest, named in ((line, ""), *unwrapped(line)) if message in rest]
    _, around = min(candidates, key=lambda candidate: len(candidate[0]), default=("", ""))
    host = next((host for rest, _ in candidates if (host := host_of_tagged_line(rest))), "")
    return " ".join((in_json[1] if in_json else "", *around.split(), host))


def _inner(line: str) -> tuple[str, str] | None:
    match = _WRAPPER.match(line)
    if match is not None:
        return line[match.end() :], next((name for name in match.groupdict().values() if name), "")
    key = _JSON_KEY.search(line)
    if key is None:
        return None
    try:
        message, _ = _DECODER.raw_decode(line, key.end())
    except ValueError:
        return None
    outside, brace, _ = line.partition("{")
    return str(message).partition("\n")[0], outside if brace and len(outside) < key.start() else ""
