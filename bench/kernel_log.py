"""Measures how fast kernel logs are read, on one core: ordinary lines through the filter, and fault lines."""

import io
import json
import random
import time

from nodeheal.parsers.kernel_log import read_findings
from nodeheal.parsers.log_format import LogFormat

ORDINARY_LINES = 1_000_000
FAULT_LINES = 50_000
REPEATS = 3

_SYSLOG = "Nov 21 05:50:31 gpu-7 kernel: [  123.456789] "
_DMESG = "[  123.456789] "
# Ordinary kernel messages, some of them with capitals.
_ORDINARY = (
    "usb 1-1: new high-speed USB device number 5 using xhci_hcd",
    'audit: type=1400 audit(1700000000.123:45): apparmor="ALLOWED" operation="open" profile="snap"',
    "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
    "docker0: port 3(veth1f2e3d4) entered forwarding state",
    "[UFW BLOCK] IN=ens5 OUT= MAC=0a:58:a9 SRC=10.0.3.17 DST=10.0.1.2 LEN=60 TOS=0x00 PREC=0x00 TTL=64 ID=1",
    "EXT4-fs (nvme1n1): mounted filesystem 3f5e1c2a with ordered data mode. Quota mode: none.",
    "nvme nvme2: 32/0/0 default/read/poll queues",
    "systemd-journald[612]: Data hash table of /run/log/journal has a fill level at 75.0, suggesting rotation.",
    "TCP: request_sock_TCP: Possible SYN flooding on port 29500. Sending cookies.",
    "perf: interrupt took too long (2512 > 2500), lowering kernel.perf_event_max_sample_rate to 79500",
)
_FAULTS = (
    "NVRM: Xid (PCI:0000:b9:00): 79, pid=1234, name=python, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 14 (0x0409a0c2 0x00000004 0x00000001)",
    "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
    "pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:01:00.0",
    "Out of memory: Killed process 4711 (python3) total-vm:1234kB, anon-rss:99kB",
)


def measure_kernel_log() -> dict[str, int]:
    """Return lines a second, the best of a few runs: other load only ever slows them down."""
    return {
        "ordinary_syslog_lines_per_second": _lines_per_second(_SYSLOG, _ORDINARY, ORDINARY_LINES),
        "ordinary_dmesg_lines_per_second": _lines_per_second(_DMESG, _ORDINARY, ORDINARY_LINES),
        "fault_syslog_lines_per_second": _lines_per_second(_SYSLOG, _FAULTS, FAULT_LINES),
        "fault_journal_lines_per_second": _rate(_journal(), LogFormat.journald, FAULT_LINES),
        "ordinary_syslog_line_bytes": round(len("".join(_ORDINARY)) / len(_ORDINARY)) + len(_SYSLOG) + 1,
    }


def _lines_per_second(header: str, messages: tuple[str, ...], count: int) -> int:
    chosen = random.Random(1).choices(messages, k=count)
    return _rate("".join(f"{header}{message}\n" for message in chosen).encode(), LogFormat.auto, count)


def _journal() -> bytes:
    chosen = random.Random(1).choices(_FAULTS, k=FAULT_LINES)
    fields = {"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0", "PRIORITY": "3", "_BOOT_ID": "0" * 32, "_HOSTNAME": "gpu"}
    return "".join(json.dumps({**fields, "MESSAGE": message}) + "\n" for message in chosen).encode()


def _rate(log: bytes, log_format: LogFormat, count: int) -> int:
    return max(_once(log, log_format, count) for _ in range(REPEATS))


def _once(log: bytes, log_format: LogFormat, count: int) -> int:
    started = time.process_time()
    for _ in read_findings(io.BytesIO(log), log_format):
        pass
    return round(count / (time.process_time() - started))
