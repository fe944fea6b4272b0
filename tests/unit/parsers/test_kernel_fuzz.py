"""Hostile and broken kernel logs: nothing raises, nothing is slow, and the fast way finds what the slow way finds."""

import io
import json
import statistics
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeheal.parsers.kernel_line import parse_kmsg_record, parse_message, parse_syslog_line
from nodeheal.parsers.kernel_log import read_findings
from nodeheal.parsers.log_format import LogFormat

GOLDEN = Path(__file__).parents[2] / "golden" / "kernel_logs"
LINES = [line for log in sorted(GOLDEN.glob("*.log")) for line in log.read_bytes().splitlines()]
# One message that ends in a finding for every pattern of every family.
FAULTS = (
    "NVRM: Xid (PCI:0000:b9:00): 79, pid=1234, name=python, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 14 (0x0409a0c2 0x00000004 0x00000001)",
    "NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
    "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
    "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x25:0x65:1462)",
    "2026-11-21T05:50:31.123Z NEURON_HW_ERR=HBM_UNCORRECTABLE_ERROR nd-id=0 nc-id=0 action=TERMINATE_INSTANCE",
    "neuron:nr_reset_thread_fn: nd11: reset request 4711 failed",
    "neuron-driver: probe of 0000:00:1e.0 failed with error -19",
    "efa 0000:00:1d.0 rdmap0s29: Wait for completion (polling) timeout",
    "efa: probe of 1000:00:1d.0 failed with error -19",
    "mlx5_core 0000:5e:00.0: wait_func:1:(pid 19): ENABLE_HCA(0x1) timeout. Will cause a leak of a command resource",
    "mlx5_core 0000:5e:00.0: print_health_info:1:(pid 0): Health issue observed, firmware error, severity(3) ERROR:",
    "NETDEV WATCHDOG: ens1np0 (mlx5_core): transmit queue 3 timed out",
    "pcieport 0000:00:1c.0: AER: Multiple Uncorrectable (Non-Fatal) error message received from 0000:73:00.1",
    "nvidia 0000:b9:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)",
    "pcieport 0000:00:1c.0: DPC: containment event, status:0x1f05, ERR_FATAL received from 0000:02:00.0",
    "pciehp 0000:00:1c.0:pcie004: Slot(0): Link Down",
    "mce: [Hardware Error]: CPU 18: Machine Check Exception: 5 Bank 7: be00000001010091",
    "EDAC MC3: 1 UE memory read error on CPU_SrcID#0_MC#3_Chan#0_DIMM#0",
    "Kernel panic - not syncing: Fatal machine check",
    "Memory failure: 0x7740c0: recovery action for dirty page: Recovered",
    "Out of memory (oom_kill_allocating_task): Killed process 4711 (python3) total-vm:1kB",
    "Memory cgroup out of memory: Killed process 4711 (python3) total-vm:1234kB",
    "NVRM: Xid (PCI:0000:b9:00): 74, NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
    "pcieport 0000:00:1c.0: pciehp: Slot(0-1): Power fault",
    "nvidia 0000:b9:00.0: not ready 60000ms after FLR; giving up",
    "pci 0000:b9:00.0: Unable to change power state from D3cold to D0, device inaccessible",
    "nvidia-nvswitch3: Failed to initialize device : -5",
    "general protection fault, probably for non-canonical address 0xdead000000000108: 0000 [#1] SMP NOPTI",
    "Internal error: Oops: 0000000096000004 [#1] PREEMPT SMP",
    "watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [python3:2254956]",
    "watchdog: CPU3: Watchdog detected hard LOCKUP on cpu 3",
    "INFO: task kworker/u96:3:4711 blocked for more than 122 seconds.",
    "nvme nvme4: I/O tag 22 (2016) opcode 0x2 (Admin Cmd) QID 0 timeout, reset controller",
    "nvme nvme1: Disabling device after reset failure: -19",
    "critical medium error, dev sdb, sector 8 op 0x0:(READ) flags 0x0 phys_seg 1",
    "print_req_error: I/O error, dev nvme0n1, sector 0",
    "XFS (dm-0): Log I/O Error Detected.  Shutting down filesystem",
    "XFS (dm-0): Filesystem has been shut down due to log error (0x2).",
    "EXT4-fs (nvme1n1p1): Remounting filesystem read-only",
    "BTRFS info (device sdb: state E): forced readonly",
    "nfs: server 10.0.0.5 not responding, still trying",
    "pt_main_thread[2536443]: segfault at 7f79 ip 7f7c sp 7f7c error 4 in libnccl.so.2[7f7c7ac00000+d3d3000]",
    "bnxt_en 0000:19:00.0 enp25s0f0np0: NIC Link is Down",
    "ena 0000:00:05.0 eth0: Keep alive watchdog timeout.",
    "ena 0000:00:05.0 eth0: Lost TX completions are above the threshold (129 > 128)",
    "ena 0000:00:05.0 eth0: The number of lost tx completions is above the threshold (129 > 128). Reset the device",
    "CPU12: Package temperature is above threshold, cpu clock is throttled (total events = 1)",
)
HEADERS = (
    "",
    "[  123.456789] ",
    "Nov 21 05:50:31 gpu-7 kernel: [  123.456789] ",
    "<3>1 2026-11-21T05:50:31.123Z gpu-7 kernel - - - ",
    "kern  :err   : [Sat Nov 21 05:50:31 2026] ",
    "3,4711,123456789,-;",
    "Nov 21 05:50:31 gpu-7 trainer[1]: ",
)


def journal(message: str, is_in_bytes: bool) -> bytes:
    return json.dumps({"MESSAGE": list(message.encode()) if is_in_bytes else message, "_TRANSPORT": "kernel"}).encode()


fault_lines = st.one_of(
    st.builds(lambda header, fault: (header + fault).encode(), st.sampled_from(HEADERS), st.sampled_from(FAULTS)),
    st.builds(journal, st.sampled_from(FAULTS), st.booleans()),
    st.builds(lambda fault: journal(fault, False).replace(b"e", b"\\u0065"), st.sampled_from(FAULTS)),
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    line = bytearray(draw(st.one_of(fault_lines, st.sampled_from(LINES))))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(line)))
        line[at : at + draw(st.integers(0, 4))] = draw(
            st.one_of(st.binary(max_size=4), st.sampled_from([b"\n", b"\0"]))
        )
    return bytes(line)


logs = st.builds(
    lambda lines, end: b"\n".join(lines) + end,
    st.lists(st.one_of(mutated(), st.sampled_from(LINES), st.binary(max_size=60)), max_size=12),
    st.sampled_from([b"", b"\n", b"\r\n"]),
)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_of_these_tests_is_one(fault: str) -> None:
    assert parse_message(fault) is not None


@settings(max_examples=400, deadline=None)
@given(logs, st.sampled_from(list(LogFormat)))
def test_the_filter_loses_no_finding(log: bytes, log_format: LogFormat) -> None:
    filtered = list(read_findings(io.BytesIO(log), log_format))

    assert filtered == list(read_findings(io.BytesIO(log), log_format, is_filtered=False))


@settings(max_examples=100, deadline=None)
@given(logs, st.integers(1, 40))
def test_it_does_not_matter_where_a_stream_is_cut(log: bytes, size: int) -> None:
    class Slow(io.BytesIO):
        def read1(self, _: int | None = -1, /) -> bytes:
            return super().read(size)

    # What the form of the log is, its first block decides: here every block has the same first line.
    log = b"Nov 21 05:50:31 gpu-7 kernel: hello\n" + log

    assert list(read_findings(Slow(log))) == list(read_findings(io.BytesIO(log)))


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.binary(), mutated()))
def test_no_bytes_break_the_parsers(line: bytes) -> None:
    parse_syslog_line(line)
    parse_kmsg_record(line)
    finding = parse_message(line.decode("utf-8", "replace"))

    assert finding is None or finding.code


def seconds(text: str) -> float:
    def once() -> float:
        started = time.process_time()
        for _ in range(20):
            parse_message(text)
            parse_syslog_line(f"Nov 21 05:50:31 gpu-7 kernel: {text}".encode())
            list(read_findings([text.encode()], LogFormat.dmesg, is_filtered=False))
        return time.process_time() - started

    return statistics.median(once() for _ in range(3))


HOSTILE = (
    *(fault[:at] for fault in FAULTS for at in (len(fault) // 2, len(fault) - 1)),
    "NVRM: Xid (PCI:0000:b9:00): 149, A",
    "NVRM: Xid (PCI:0000:b9:00): 149, (0x0 ",
    "NVRM: Xid (PCI:0000:b9:00): 154, GPU recovery action changed from  to ",
    "mlx5_core 0000:5e:00.0: Health issue observed, ",
    "neuron: " + "nd-id=",
    "<3>1 2026-11-21T05:50:31.123Z gpu-7 kernel - - [",
)


@pytest.mark.parametrize("filler", ["0", " ", "a", "(", "[ ", ",", ", A", "0x0 ", ": ", " to "])
def test_time_grows_with_the_length_of_a_line_and_not_faster(filler: str) -> None:
    # An eighth and the whole of the longest line that a pattern sees. In proportion that is 8 times the time, in
    # proportion to the square 64 times.
    for start in HOSTILE:
        short, long = (start + filler * (length // len(filler)) for length in (1_000, 8_000))

        assert seconds(long) < 24 * seconds(short) + 0.01, start
