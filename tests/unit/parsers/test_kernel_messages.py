"""Kernel messages of every family: what is a fault, and what only looks like one."""

from pathlib import Path

import pytest

from nodeheal.contract.vocabulary import Action, Family
from nodeheal.domain.faults.catalog import find
from nodeheal.parsers.finding import Finding
from nodeheal.parsers.kernel_line import parse_message
from nodeheal.parsers.kernel_log import read_findings
from nodeheal.parsers.kernel_pcie import placed
from nodeheal.parsers.log_format import LogFormat

# What the catalog must have rows for, besides the numbered faults.
CODES = (Path(__file__).parents[2] / "golden" / "kernel_logs" / "codes.txt").read_text().split()


def found(message: str) -> Finding:
    finding = parse_message(message)
    assert finding is not None, message
    assert finding.message == message
    first_line = message.splitlines()[0].encode()
    assert [found.code for _, found in read_findings([first_line], LogFormat.dmesg)] == [finding.code], (
        "lost by the filter"
    )
    if finding.family not in (Family.xid, Family.sxid):
        row = find(finding.family, finding.code, finding.subcode)
        assert row is not None
        assert row.key in CODES
    return finding


@pytest.mark.parametrize(
    ("message", "code", "component", "pid"),
    [
        ("NVRM: Xid (0000:03:00): 31, Ch 00000001, engmask 00000101, intr 10000000", "31", "0000:03:00.0", None),
        ("NVRM: Xid (PCI:0000:b9:00): 74, pid=1234, name=python, NVLink: fatal error", "74", "0000:b9:00.0", 1234),
        ("NVRM: Xid (PCI:0000:b9:00.0): 79, GPU has fallen off the bus.", "79", "0000:b9:00.0", None),
        ("NVRM: Xid (PCI:0000:b5:00): 13, pid='<unknown>', name=<unknown>, Graphics", "13", "0000:b5:00.0", None),
        ("NVRM: Xid (PCI:0000:b5:00): 13, pid='1797828', name=train, Graphics", "13", "0000:b5:00.0", 1797828),
        ("NVRM: Xid (PCI:0000:b5:00): 43, pid=<unknown>, name=<unknown>, Ch 8", "43", "0000:b5:00.0", None),
        ("NVRM: Xid (PCI:0000:0f:00 GPU-I:03): 45, pid=7, name=python3, Ch 8", "45", "0000:0f:00.0", 7),
        ("NVRM: Xid (PCI:0000:0f:00 GPU-I:03 GPU-CI:01): 45, pid=7, name=python3, Ch 8", "45", "0000:0f:00.0", 7),
        ("NVRM: Xid (PCI:0000:0f:00 GPU-3f5e1c2a-0b1d-4e6f): 45, pid=7, name=python3", "45", "0000:0f:00.0", 7),
        ("NVRM: Xid (PCI:00000009:01:00): 149, no unit", "149", "0009:01:00.0", None),
        ("NVRM: Xid (PCI:0018:AB:1F): 119, Timeout after 6s of waiting for RPC response", "119", "0018:ab:1f.0", None),
        ("NVRM: Xid (PCI:0000:3f:00): 46", "46", "0000:3f:00.0", None),
        ("NVRM: Xid (PCI:0000:3f:00): 999, pid=1", "999", "0000:3f:00.0", 1),
        ("NVRM: Xid (PCI:0000:dc:00): 45, pid=18, name=p, Ch 1 caused by previous Xid 149", "45", "0000:dc:00.0", 18),
        # Drivers before 2014.
        ("NVRM: Xid (2a:00): 79, GPU has fallen off the bus.", "79", "0000:2a:00.0", None),
        ("NVRM: Xid (0003:00): 13, 0003 00000000 00008297 00001b0c 1000f010 00000040", "13", "0000:03:00.0", None),
        ("NVRM: Xid: 31, Ch 00000003, engmask 00000101, intr 10000000", "31", None, None),
        ("NVRM: Xid : 32, pid=2280636", "32", None, 2280636),
    ],
)
def test_every_spelling_of_an_xid_is_understood(
    message: str, code: str, component: str | None, pid: int | None
) -> None:
    finding = found(message)

    assert (finding.family, finding.code, finding.component, finding.pid) == (Family.xid, code, component, pid)
    assert finding.subcode is None


@pytest.mark.parametrize(
    ("text", "subcode"),
    [
        ("149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 0x00000000 0x00000000 0x0)", "NETIR_LINK_EVT/37"),
        ("149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000)", "NETIR_LINK_EVT/4"),
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6 0x00000000 0x00000000)", "NETIR_LINK_EVT/38"),
        ("149, NETIR_LINK_EVT/NETIR_LINK_DOWN Fatal XC0 i0 Link 00 (0x01000011 0x0 0x0)", "NETIR_LINK_EVT/16"),
        ("149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 0x00000000)", "NETIR_INT/0"),
        ("149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 00 (0x00000013 0x00000002 0x0)", "NETIR_BER_EVENT/0x00000002"),
        ("145, RLW_RXPIPE Nonfatal XC0 i0 Link 14 (0x0409a0c2 0x00000004 0x00000001)", "RLW_RXPIPE/0x00000004"),
        ("145, RLW_RXPIPE Fatal XC0 i0 Link 14 (0x0409a0c2 0x00000004 0x00000001)", "RLW_RXPIPE/0x00000004/fatal"),
        ("145, RLW_REMAP Non-fatal XC 1 i 2 Link 01 [0x00000082, 0x80000000]", "RLW_REMAP/0x80000000"),
        ("144, SAW_MVB Nonfatal XC0 i0 Link 0 (0x00000001 0x00000008 0x00000000)", "SAW_MVB/0x00000008"),
        ("146, TLW_RX/TLW_RX_PIPE1 Fatal XC0 i0 Link 00 (0x0000000b 0x00000004 0x0)", "TLW_RX_PIPE1/0x00000004"),
        ("148, NVLPW_CTRL/NVLPW Nonfatal XC0 i0 Link 00 (0x0000000f 0x80000000 0x0)", "NVLPW/0x80000000"),
        ("150, MSE_WATCHDOG Fatal XC0 i0 Link 00 (0x00000000 0x00000000 0x00000000)", "MSE_WATCHDOG/0x00000000"),
        ("145, pid=12, name=python3, RLW_CTRL Nonfatal XC0 i0 Link 3 (0x3 0x80000000 0x0)", "RLW_CTRL/0x80000000"),
        ("149, NETIR_LINK_EVT Fatal XC 1 i 2 Link 01 [0x0000000a]", "NETIR_LINK_EVT"),
        ("147, TREX Nonfatal XC0 i0 Link 00", "TREX"),
        ("145, Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001)", "RLW_RXPIPE/0x00000008"),
        ("146, XC0 i0 Link 13 (0x0000000d 0x00000001 0x00000000)", "TLW_TX_PIPE1/0x00000001"),
        ("149, XC0 i0 Link 13 (0x02500011 0x00000000 0x00000000)", "NETIR_LINK_EVT/37"),
        ("144, XC0 i0 Link 13 (0x0000001f 0x00000001 0x00000000)", None),
        ("144, something that nobody has seen", None),
    ],
)
def test_an_nvlink5_xid_says_which_unit_complains_of_what(text: str, subcode: str | None) -> None:
    finding = found(f"NVRM: Xid (PCI:0018:01:00): {text}")

    assert finding.subcode == subcode


@pytest.mark.parametrize(
    ("change", "subcode"),
    [
        ("0x0 (None) to 0x1 (GPU Reset Required)", "GPU_RESET"),
        ("0x0 (None) to 0x2 (Node Reboot Required)", "NODE_REBOOT"),
        ("0x0 (None) to 0x2 (OS Reboot)", "NODE_REBOOT"),
        ("0x0 (None) to 0x3 (Drain P2P)", "DRAIN_P2P"),
        ("0x0 (None) to 0x4 (Drain and Reset)", "DRAIN_AND_RESET"),
        ("0x0 (None) to 0x5 (Recover IMEX Domain)", "RECOVER_IMEX_DOMAIN"),
        ("None to Recover IMEX Domain", "RECOVER_IMEX_DOMAIN"),
        ("0x4 (Drain and Reset) to 0x1 (GPU Reset Required)", "GPU_RESET"),
        ("0x1 (GPU Reset Required) to 0x0 (None)", "NONE"),
        ("None to Node Reboot Required", "NODE_REBOOT"),
        ("None to GPU Reset Required.", "GPU_RESET"),
        ("0x0 (None) to 0x1 (PF FLR)", "GPU_RESET"),
        ("0x0 to 0x4", "DRAIN_AND_RESET"),
        ("0x0 (None) to 0x7 (System Reboot Required)", "NODE_REBOOT"),
        ("None to System Reboot", "NODE_REBOOT"),
        ("0x0 (None) to 0x6 (Bus Reset)", None),
        ("0x0 (None) to 0x9 (Pray)", None),
        ("0x0 (None) to", None),
    ],
)
def test_xid_154_says_what_the_driver_now_asks_for(change: str, subcode: str | None) -> None:
    finding = found(f"NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from {change}".strip())

    assert (finding.code, finding.subcode) == ("154", subcode)


@pytest.mark.parametrize(
    ("text", "code", "subcode"),
    [
        ("20034, Fatal, Link 30 LTSSM Fault Up", "20034", "fatal"),
        ("22013, Non-fatal, Link 44 Minion Link DLREQ interrupt", "22013", "nonfatal"),
        ("12028, Nonfatal, Link 32 egress non-posted PRIV error", "12028", "nonfatal"),
        ("10003, Host_priv_timeout", "10003", None),
        ("00001, Fatal", "1", "fatal"),
    ],
)
def test_an_sxid_carries_its_severity(text: str, code: str, subcode: str | None) -> None:
    finding = found(f"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): {text}")

    assert (finding.family, finding.code, finding.subcode) == (Family.sxid, code, subcode)
    assert finding.component == "0000:c1:00.0"


@pytest.mark.parametrize(
    "text", ["22013, Severity 0 Engine instance 44 Sub-engine instance 00", "22013, Data {0x0000002b, 0x00000000}"]
)
def test_the_registers_of_an_sxid_are_no_second_fault(text: str) -> None:
    assert parse_message(f"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): {text}") is None


@pytest.mark.parametrize(
    ("message", "code", "component"),
    [
        ("NVRM: GPU 0000:04:00.0: GPU has fallen off the bus.", "fallen_off_bus", "0000:04:00.0"),
        ("NVRM: GPU at PCI:0000:b9:00: has fallen off the bus", "fallen_off_bus", "0000:b9:00.0"),
        ("NVRM: GPU at 0000:01:00.0 has fallen off the bus.", "fallen_off_bus", "0000:01:00.0"),
        ("NVRM: The NVIDIA GPU 0000:b3:00.0", "fallen_off_bus", "0000:b3:00.0"),
        (
            "NVRM: The NVIDIA GPU 0000:b3:00.0\nNVRM: (PCI ID: 10de:26b5) installed in this system has\n"
            "NVRM: fallen off the bus and is not responding to commands.",
            "fallen_off_bus",
            "0000:b3:00.0",
        ),
        (
            r"NVRM: The NVIDIA GPU 0000:b3:00.0\x0aNVRM: has\x0aNVRM: fallen off the bus",
            "fallen_off_bus",
            "0000:b3:00.0",
        ),
        ("NVRM: The NVIDIA GPU 0000:b3:00.0#012NVRM: fallen off the bus and is", "fallen_off_bus", "0000:b3:00.0"),
        (
            "NVRM: The NVIDIA GPU 0000:04:00.0 (PCI ID: 10de:2c02) installed in this system has",
            "fallen_off_bus",
            "0000:04:00.0",
        ),
        ("nvidia 0000:01:00.0: probe with driver nvidia failed with error -1", "probe_failed", "0000:01:00.0"),
        ("nvidia: probe of 0000:01:00.0 failed with error -1", "probe_failed", "0000:01:00.0"),
        ("NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x25:0x65:1462)", "RmInitAdapter_failed", "0000:3b:00.0"),
        (
            "NVRM: GPU 0000:3b:00.0: rm_init_adapter failed, device minor number 0",
            "RmInitAdapter_failed",
            "0000:3b:00.0",
        ),
        ("NVRM: rm_init_adapter failed for device bearing minor number 0", "RmInitAdapter_failed", None),
        ("NVRM: nvAssertOkFailedNoLog: Assertion failed: GPU lost from the bus [NV_ERR_GPU_IS_LOST]", "gpu_lost", None),
        ("NVRM: GPU0 nvAssertOkFailedNoLog: Reset required [NV_ERR_RESET_REQUIRED]", "reset_required", None),
        (
            "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot to recover.",
            "uvm_fatal_error",
            None,
        ),
        (
            "NVRM: GPU0 RmInitAdapter: osInitNvMapping failed, bailing out of RmInitAdapter",
            "RmInitAdapter_failed",
            None,
        ),
        (
            "NVRM: GPU0 RmInitAdapter: RmInitNvDevice failed, bailing out of RmInitAdapter",
            "RmInitAdapter_failed",
            None,
        ),
        ("NVRM: GPU0 RmInitAdapter: Cannot initialize GSP firmware RM", "RmInitAdapter_failed", None),
        (
            "NVRM: GPU1 _kgspBootGspRm: unexpected WPR2 already up, cannot proceed with booting GSP",
            "RmInitAdapter_failed",
            None,
        ),
        (
            "NVRM: GPU0 nvAssertFailedNoLog: Assertion failed: GPU marked for reset @ kernel_gsp.c:2607",
            "reset_required",
            None,
        ),
        (
            "NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:b9:00 (printing 1 of every 30).  "
            "The GPU likely needs to be reset.",
            "reset_required",
            None,
        ),
        (
            "NVRM: GPU0 _kgspRpcGspEventPmuHalted: Received signal from GSP that PMU has halted.",
            "gsp_report",
            None,
        ),
        ("NVRM: GPU0 kgspHealthCheck_TU102: ****** GSP-CrashCat Report *******", "gsp_report", None),
        ("NVRM: GPU0 _kgspClassifyGspTimeout: ====== GSP core unresponsive ======", "gsp_no_answer", None),
        ("NVRM: GPU0 _kgspClassifyGspTimeout: ====== GSP-RM unresponsive ======", "gsp_no_answer", None),
        ("NVRM: _kgspIsHeartbeatTimedOut: Heartbeat timed out, currentTimeMs 99 diff 6120", "gsp_no_answer", None),
        ("NVRM: GPU3 _kgspRpcRecvPoll: GSP RM heartbeat timed out", "gsp_no_answer", None),
        ("NVRM: GPU3 _kgspRpcRecvPoll: LibOS heartbeat timed out", "gsp_no_answer", None),
        ("NVRM: GPU2 _kgspLogRpcTimeout: ********* GSP Timeout *********", "gsp_no_answer", None),
        ("NVRM: _kgspLogXid119: ********* GSP Timeout *********", "gsp_no_answer", None),
        (
            "NVRM: GPU1 kgspBootstrap_GH100: GSP-FMC reported an error while attempting to boot GSP: 0x1",
            "gsp_no_answer",
            None,
        ),
        ("NVRM: kgspBootstrap_TU102: Failed to boot GSP.", "gsp_no_answer", None),
        (
            "NVRM: GPU0 krcWatchdog_IMPL: RC watchdog: GPU is probably locked!  Notify Timeout Seconds: 7",
            "gsp_no_answer",
            None,
        ),
        ("NVRM: The NVIDIA probe routine was not called for 8 device(s).", "not_probed", None),
        ("NVRM: No NVIDIA devices probed.", "not_probed", None),
        ("nvidia-nvswitch3: Failed to initialize device : -5", "nvswitch_init_failed", "nvidia-nvswitch3"),
        ("NVRM: The NVIDIA probe routine failed for 1 device(s).", "probe_failed", None),
        ("NVRM: None of the NVIDIA devices were initialized.", "no_device_initialized", None),
        ("NVRM: No NVIDIA GPU found.", "no_gpu_found", None),
        ("NVRM: API mismatch: the client has the version 535.54.03, but", "api_mismatch", None),
        ("NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:", "bar_invalid", None),
        (
            "NVRM: knvlinkDiscoverPostRxDetLinks_GH100: Getting peer0's postRxDetLinkMask failed!",
            "nvlink_rx_detect_failed",
            None,
        ),
    ],
)
def test_the_nvidia_driver_also_tells_of_faults_in_words(message: str, code: str, component: str | None) -> None:
    finding = found(message)

    assert (finding.family, finding.code, finding.component) == (Family.nvrm_other, code, component)


def test_the_number_that_the_driver_gives_a_gpu_names_no_gpu() -> None:
    """It is the first that was free when the GPU was attached (open-gpu-kernel-modules, gpumgrAllocGpuInstance).

    A GPU that does not start leaves its number to the next, so GPU2 of the driver may be GPU 3 of nvidia-smi.
    """
    counted, placed = found("NVRM: GPU2 RmInitAdapter failed!"), found("NVRM: GPU 0000:3b:00.0: RmInitAdapter failed!")

    assert (counted.code, counted.component) == (placed.code, None)
    assert placed.component == "0000:3b:00.0"


@pytest.mark.parametrize(
    "message",
    [
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.195.03  Release Build",
        "NVRM: GPU at PCI:0000:66:00: GPU-12345678-1234-5678-9abc-def012345678",
        "NVRM: GPU Board Serial Number: 1563221012345",
        "NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:26b5)",
        "NVRM: The NVIDIA GPU 0000:17:00.0 (PCI ID: 10de:1bb3) installed in this system",
        "NVRM: fallen off the bus and is not responding to commands.",
        "NVRM: A GPU crash dump has been created.",
        "NVRM: GPU0 _kgspClassifyGspTimeout: =================== GSP-RM is slow ===================",
        "nvidia-nvswitch3: Successfully initialized device",
        "NVRM: Xid (PCI:0000:b9:00): ",
        "NVRM: Xid (PCI:0000:b9:00): 79abc",
        "NVRM: Xid (PCI:zzzz:b9:00): 79, pid=1",
        "NVRM: Xid (2a:00:): 79",
        "NVRM: Xid (0002a:00): 79",
        "NVRM: Xid() : 79",
        "nvidia-nvswitch0: using MSI",
        "nvidia: loading out-of-tree module taints kernel.",
        "nvidia-uvm: Loaded the UVM driver, major device number 510.",
    ],
)
def test_what_the_nvidia_driver_says_for_information_is_no_fault(message: str) -> None:
    assert parse_message(message) is None


FIELDS = "instance-id=i-0592464924bd45322 hostname=ip-172-31-61-252 nd-id=0 nc-id=0 serial-num=19fcda00f5ff6eb9"


@pytest.mark.parametrize(
    ("message", "code", "subcode", "component"),
    [
        (
            f"NEURON_HW_ERR=SRAM_UNCORRECTABLE_ERROR {FIELDS} action=TERMINATE_INSTANCE",
            "SRAM_UNCORRECTABLE_ERROR",
            None,
            "neuron0",
        ),
        (f"2026-11-21T05:50:31.123Z NEURON_HW_ERR=DMA_ERROR {FIELDS}", "DMA_ERROR", None, "neuron0"),
        (f"2026-11-21T05:50:31.123456+00:00 NEURON_HW_ERR=NC_HANG {FIELDS}", "NC_HANG", None, "neuron0"),
        ("nrtd[4711]: error! NEURON_HW_ERR=DMA_ERROR nd-id=3", "DMA_ERROR", None, "neuron3"),
        ("[123] neuron13: NEURON_HW_ERR=DMA_ERROR", "DMA_ERROR", None, "neuron13"),
        ("neuron13: NEURON_HW_ERR=NC_UNCORRECTABLE_ERROR of a core", "NC_UNCORRECTABLE_ERROR", None, "neuron13"),
        ("NEURON_HW_ERR=HANG_ON_COLLECTIVES nd-id=12 nc-id=1", "HANG_ON_COLLECTIVES", None, "neuron12"),
        ("NEURON_HW_ERR=HBM_UNCORRECTABLE_ERROR nd-id=1", "HBM_UNCORRECTABLE_ERROR", None, "neuron1"),
        (
            "NEURON_HW_ERR=HBM_UNCORRECTABLE_ERROR nd-id=1 action=TERMINATE_INSTANCE",
            "HBM_UNCORRECTABLE_ERROR",
            "unrepairable",
            "neuron1",
        ),
        (
            "NEURON_HW_ERR=HBM_UNCORRECTABLE_ERROR nd-id=1 action=REBOOT_INSTANCE",
            "HBM_UNCORRECTABLE_ERROR",
            "repairable",
            "neuron1",
        ),
        (
            "NEURON_HW_ERR=HBM_UNCORRECTABLE_ERROR (repairable) nd-id=1",
            "HBM_UNCORRECTABLE_ERROR",
            "repairable",
            "neuron1",
        ),
        (
            "NEURON_HW_ERR=HBM_UNCORRECTABLE_ERROR (unrepairable) nd-id=1 action=REBOOT",
            "HBM_UNCORRECTABLE_ERROR",
            "unrepairable",
            "neuron1",
        ),
        ("NEURON_HW_ERR=SRAM_UNCORRECTABLE_ERROR", "SRAM_UNCORRECTABLE_ERROR", None, None),
        (
            "neuron:ndma_memcpy_wait_for_completion: DMA completion timeout on nd03 for udma-2 q0 desc count 65",
            "DMA_COMPLETION_TIMEOUT",
            None,
            "neuron3",
        ),
        ("neuron:nr_reset_thread_fn: nd11: reset request 4711 failed", "DEVICE_RESET_FAILED", None, "neuron11"),
        (
            "neuron:nr_reset_thread_fn: nd0: reset request 4711 was initiated, but failed to complete",
            "DEVICE_RESET_FAILED",
            None,
            "neuron0",
        ),
        (
            "neuron:nr_reset_thread_fn: nd0: failed to initialize dma after reset",
            "DEVICE_RESET_FAILED",
            None,
            "neuron0",
        ),
        ("neuron:ncdev_open: nd7 is in an invalid state", "INVALID_STATE", None, "neuron7"),
        ("neuron:ndmar_init_nc: nd2: DMA eng12 init failed - -1", "DMA_INIT_FAILED", None, "neuron2"),
        ("neuron:ndmar_init_ncs: nd2: DMA init failed on nc 1", "DMA_INIT_FAILED", None, "neuron2"),
        ("neuron:ndmar_h2t_ring_reset: nd0:dma3:q12 failed to reset (-1)", "DMA_QUEUE_RESET_FAILED", None, "neuron0"),
        ("neuron:ncdev_hbm_scrub_wait: Scrub failed for nd15 HBM 1", "SCRUB_FAILED", None, "neuron15"),
        (
            "neuron:ncdev_hbm_scrub_wait: Scrub failed for nd15 HBM 1: scrub context corrupted",
            "SCRUB_FAILED",
            None,
            "neuron15",
        ),
        ("neuron:fw_io_execute_request: seq: 5, cmd: 1 timed out", "FIRMWARE_TIMEOUT", None, None),
        ("neuron:neuron_pci_probe: readless read initialization failed", "PROBE_FAILED", None, None),
        (
            "neuron-driver: probe of 0000:00:1e.0 failed with error -19",
            "PROBE_FAILED",
            None,
            "0000:00:1e.0",
        ),
        (
            "neuron-driver 0000:00:1e.0: probe with driver neuron-driver failed with error -19",
            "PROBE_FAILED",
            None,
            "0000:00:1e.0",
        ),
    ],
)
def test_a_neuron_device_names_its_fault(message: str, code: str, subcode: str | None, component: str | None) -> None:
    finding = found(message)

    assert finding.family is Family.neuron
    assert (finding.code, finding.subcode, finding.component) == (code, subcode, component)


@pytest.mark.parametrize(
    "message",
    [
        "neuron:nr_reset_thread_fn: nd0: initiating device reset request 4711",
        "neuron:nr_reset_thread_fn: nd0: reset request 4711 completed",
        "neuron: loading out-of-tree module taints kernel.",
        "NEURON_HW_ERR=",
        "MY_NEURON_HW_ERR=DMA_ERROR",
    ],
)
def test_what_the_neuron_driver_says_for_information_is_no_fault(message: str) -> None:
    assert parse_message(message) is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("The device didn't send any completion for admin cmd CREATE_QP(1) status 0 (ctx 0x1)", "admin_timeout"),
        ("Wait for completion (polling) timeout", "admin_timeout"),
        (
            "The device sent a completion but the driver didn't receive any MSI-X interrupt for admin",
            "missed_interrupt",
        ),
        ("Admin queue is closed", "admin_queue_closed"),
        ("Reading register timed out. expected: req id[1] offset[0x54]", "register_read_failed"),
        ("Device isn't ready, can't reset device", "device_not_ready"),
        ("Reset indication didn't turn off", "reset_failed"),
        ("Keep alive watchdog timeout.", "keep_alive_missing"),
        ("probe with driver efa failed with error -62", "probe_failed"),
        ("EFA device init failed", "probe_failed"),
        ("Failed to enable MSI-X. error -28", "probe_failed"),
        ("Failed to init readless MMIO", "probe_failed"),
        ("Failed to remap register bar", "probe_failed"),
        ("Failed to request irq efa-mgmnt@pci:0000:00:1d.0 (-12)", "probe_failed"),
        ("BARs unavailable. Requested 0x5, available 0x1", "probe_failed"),
        ("Doorbells BAR unavailable. Requested 0x10, available 0x5", "probe_failed"),
        ("pci_enable_device_mem() failed!", "probe_failed"),
        ("pci_request_selected_regions for bar 4 failed -16", "probe_failed"),
    ],
)
@pytest.mark.parametrize("prefix", ["efa 0000:00:1d.0", "efa 0000:00:1d.0 rdmap0s29"])
def test_an_efa_device_that_fails_is_named_by_its_address(prefix: str, text: str, code: str) -> None:
    finding = found(f"{prefix}: {text}")

    assert (finding.family, finding.code, finding.component) == (Family.efa, code, "0000:00:1d.0")


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (
            "mlx5_core 0000:5e:00.0: poll_health:825:(pid 0): device's health compromised - reached miss count",
            "health_poll_failed",
        ),
        (
            "mlx5_core 0000:5e:00.0: poll_health:825: device's health compromised - reached miss count.",
            "health_poll_failed",
        ),
        ("mlx5_core 0000:5e:00.0: device's health compromised - reached miss count", "health_poll_failed"),
        ("mlx5_core 0000:5e:00.0: mlx5_health_poll:900:(pid 0): Fatal error 1 detected", "fatal_error"),
        ("mlx5_core 0000:5e:00.0: print_health_info:429:(pid 0): synd 0x1: firmware internal error", "fatal_assert"),
        ("mlx5_core 0000:5e:00.0: synd 0x8: unrecoverable hardware error", "unrecoverable_error"),
        (
            "mlx5_core 0000:5e:00.0: print_health_info:491:(pid 0): Health issue observed, firmware internal error, "
            "severity(3) ERROR:",
            "health_issue",
        ),
        (
            "mlx5_core 0000:5e:00.0: wait_func:1195:(pid 1967079): ENABLE_HCA(0x104) timeout. "
            "Will cause a leak of a command resource",
            "cmd_timeout",
        ),
        (
            "mlx5_core 0000:5e:00.0: mlx5_cmd_out_err:803:(pid 1): ACCESS_REG(0x805) op_mod(0x1) failed, "
            "status bad parameter(0x3), syndrome (0x15c356)",
            "cmd_failed",
        ),
        ("mlx5_core 0000:5e:00.0: Detected insufficient power on the PCIe slot (27W).", "insufficient_power"),
        (
            "mlx5_core 0000:5e:00.0: mlx5_pcie_event:299:(pid 9): Detected insufficient power on the PCIe slot (27W).",
            "insufficient_power",
        ),
        ("mlx5_core 0000:5e:00.0 ens1f0np0: Link down", "link_down"),
        ("mlx5_core 0000:5e:00.0: Port module event: module 0, Cable unplugged", "cable_unplugged"),
        ("mlx5_core 0000:5e:00.0: Port module event[error]: module 0, Cable error, Bus stuck", "cable_error"),
        ("mlx5_core 0000:5e:00.0: temp_warn:198: High temperature on sensors with bit set 0 1", "high_temperature"),
        ("mlx5_core 0000:5e:00.0 ens1f0np0: TX timeout detected", "tx_timeout"),
        ("mlx5_core 0000:5e:00.0 ens1: NETDEV WATCHDOG: CPU: 3: transmit queue 0 timed out 5000 ms", "tx_timeout"),
        ("mlx5_core 0000:5e:00.0: probe_one:1700:(pid 8): mlx5_init_one failed with error code -110", "init_failed"),
        ("mlx5_core 0000:5e:00.0: Firmware over 120000 MS in pre-initializing state, aborting", "init_failed"),
        ("mlx5_core: probe of 0000:5e:00.0 failed with error -22", "probe_failed"),
        (
            "mlx5_core 0000:5e:00.0: mlx5_fw_fatal_reporter_err_work:713:(pid 9): Driver is in error state. Unloading",
            "recovery_failed",
        ),
        (
            "mlx5_core 0000:5e:00.0: mlx5_fw_reset_complete_reload:218:(pid 9): reset reload flow aborted, "
            "PCI reads still not working",
            "recovery_failed",
        ),
        (
            "mlx5_core 0000:5e:00.0: cmd_work_handler:1010: ACCESS_REG(0x805) timed out while waiting for a slot.",
            "cmd_timeout",
        ),
        ("mlx5_core 0000:5e:00.0 ens1np0: RX timeout on channel: 3, ICOSQ: 0x1b RQ: 0x1c, CQ: 0x4", "rx_timeout"),
    ],
)
def test_a_connectx_adapter_that_fails_is_named_by_its_address(message: str, code: str) -> None:
    finding = found(message)

    assert (finding.family, finding.code, finding.component) == (Family.ib, code, "0000:5e:00.0")


def test_a_queue_that_stalls_is_named_by_its_interface_where_the_kernel_gives_no_address() -> None:
    finding = found("NETDEV WATCHDOG: ens1np0 (mlx5_core): transmit queue 3 timed out")

    assert (finding.code, finding.component) == ("tx_timeout", "ens1np0")


@pytest.mark.parametrize(
    "message",
    [
        "efa 0000:00:1d.0: enabling device (0010 -> 0012)",
        "efa 0000:00:1d.0 rdmap0s29: IB device registered",
        "mlx5_core 0000:5e:00.0: firmware version: 14.32.1010",
        "mlx5_core 0000:5e:00.0 ens1f0np0: Link up",
        "mlx5_core 0000:5e:00.0: Port module event: module 0, Cable plugged",
        "mlx5_core 0000:5e:00.0: print_health_info:429:(pid 0): synd 0x0: unrecognized error",
        "mlx5_core 0000:5e:00.0: print_health_info:429:(pid 0): assert_var[0] 0x00000003",
        "mlx5_core 0000:5e:00.0: Health issue observed, High temperature, severity(4) WARNING:",
        "NETDEV WATCHDOG: eth0 (e1000e): transmit queue 0 timed out",
        "infiniband mlx5_0: ready",
    ],
)
def test_what_an_adapter_says_for_information_is_no_fault(message: str) -> None:
    assert parse_message(message) is None


@pytest.mark.parametrize(
    ("message", "happened", "component"),
    [
        ("pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:01:00.0", "fatal", "0000:01:00.0"),
        ("pcieport 0000:00:01.0: AER: Uncorrected (Non-Fatal) error received: id=00e0", "nonfatal", "0000:00:1c.0"),
        ("pcieport 0001:00:01.0: AER: Multiple Uncorrected (Fatal) error received: id=5e01", "fatal", "0001:5e:00.1"),
        (
            "pcieport 0000:00:1c.0: AER: Multiple Uncorrectable (Non-Fatal) error message received from 0000:73:00.1",
            "nonfatal",
            "0000:73:00.1",
        ),
        (
            "pcieport 0000:00:1c.0: AER: Uncorrectable (Fatal) error message received from 0000:73:00.1",
            "fatal",
            "0000:73:00.1",
        ),
        ("pci 0000:b9:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Inaccessible", "fatal", "0000:b9:00.0"),
        ("pcieport 0000:00:1c.0: DPC: containment event, status:0x1f01 source:0x0000", "dpc", "0000:00:1c.0"),
        ("pcieport 0000:00:1c.0: DPC: containment event, status:0x1f05 source:0x0200", "dpc", "0000:02:00.0"),
        (
            "pcieport 0000:00:1c.0: DPC: containment event, status:0x1f01: unmasked uncorrectable error",
            "dpc",
            "0000:00:1c.0",
        ),
        (
            "pcieport 0000:00:1c.0: DPC: containment event, status:0x1f05, ERR_FATAL received from 0000:02:00.0",
            "dpc",
            "0000:02:00.0",
        ),
        ("pcieport 0000:00:1c.0: pciehp: Slot(0-1): Link Down", "link_down", "0000:00:1c.0"),
        ("pciehp 0000:00:1c.0:pcie004: Slot(0): Link Down", "link_down", "0000:00:1c.0"),
        ("pcieport 0000:00:1c.0: pciehp: Slot(0-1): Power fault", "power_fault", "0000:00:1c.0"),
        ("pciehp 0000:00:1c.0:pcie004: Slot(2): Power fault on slot", "power_fault", "0000:00:1c.0"),
        ("pcieport 0000:00:1c.0: AER: device recovery failed", "recovery_failed", "0000:00:1c.0"),
        ("pcieport 0000:00:1c.0: AER: Device recovery failed", "recovery_failed", "0000:00:1c.0"),
        ("pcieport 0000:00:1c.0: AER: subordinate device reset failed", "reset_failed", "0000:00:1c.0"),
        ("pci 0000:b9:00.0: not ready 65535ms after FLR; giving up", "reset_failed", "0000:b9:00.0"),
        ("vfio-pci 0000:b9:00.0: not ready 65535ms after FLR; giving up", "reset_failed", "0000:b9:00.0"),
        (
            "pci 0000:b9:00.0: Unable to change power state from D3cold to D0, device inaccessible",
            "inaccessible",
            "0000:b9:00.0",
        ),
    ],
)
def test_a_line_of_a_pcie_port_does_not_say_whether_a_job_needs_what_failed(
    message: str, happened: str, component: str
) -> None:
    finding = found(message)

    assert (finding.family, finding.code, finding.subcode) == (Family.pcie_aer, "unplaced", happened)
    assert finding.component == component
    ours, other = placed(finding, serves_jobs=True), placed(finding, serves_jobs=False)
    assert (ours.code, ours.subcode, ours.component) == (happened, None, component)
    assert (other.code, other.subcode, other.component) == ("other_device", happened, component)


@pytest.mark.parametrize(
    ("message", "code", "component"),
    [
        (
            "nvidia 0000:b9:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer",
            "nonfatal",
            "0000:b9:00.0",
        ),
        (
            "nvidia 0000:b9:00.0: AER: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Data Link Layer",
            "fatal",
            "0000:b9:00.0",
        ),
        (
            "mlx5_core 0000:5e:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Inaccessible",
            "fatal",
            "0000:5e:00.0",
        ),
        ("efa 0000:00:1d.0: AER: PCIe Bus Error: severity=Uncorrectable (Fatal), type=X", "fatal", "0000:00:1d.0"),
        ("neuron-driver 0000:00:1e.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal)", "nonfatal", "0000:00:1e.0"),
        (
            "nvidia 0000:b9:00.0: Unable to change power state from D3hot to D0, device inaccessible",
            "inaccessible",
            "0000:b9:00.0",
        ),
        ("mlx5_core 0000:5e:00.0: not ready 60000ms after FLR; giving up", "reset_failed", "0000:5e:00.0"),
        ("nvme 0000:02:00.0: AER: PCIe Bus Error: severity=Uncorrectable (Fatal)", "other_device", "0000:02:00.0"),
        (
            "xhci_hcd 0000:06:00.3: Unable to change power state from D3cold to D0, device inaccessible",
            "other_device",
            "0000:06:00.3",
        ),
        ("ena 0000:00:05.0: not ready 60000ms after FLR; giving up", "other_device", "0000:00:05.0"),
    ],
)
def test_a_pcie_error_that_names_a_driver_is_weighed_by_it(message: str, code: str, component: str) -> None:
    finding = found(message)

    assert (finding.family, finding.code, finding.component) == (Family.pcie_aer, code, component)


@pytest.mark.parametrize(
    "message",
    [
        "pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0",
        "pcieport 0000:00:01.0: AER: Multiple Correctable error message received from 0000:01:00.0",
        "nvidia 0000:b9:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        "nvidia 0000:b9:00.0: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)",
        "nvidia 0000:b9:00.0:   device [10de:2330] error status/mask=00004000/07a10000",
        "pcieport 0000:00:1c.0: AER: device recovery successful",
        "pcieport 0000:00:1c.0: AER: enabled with IRQ 34",
        "pcieport 0000:00:1c.0: DPC: enabled with IRQ 34",
        "pcieport 0000:00:1c.0: pciehp: Slot(0-1): Link Up",
        "pcieport 0000:a9:10.0: pciehp: Slot(272): Link Down/Up ignored (recovered by DPC)",
        "nvidia 0000:b9:00.0: not ready 1023ms after FLR; waiting",
        "nvidia 0000:b9:00.0: ready 2047ms after FLR",
    ],
)
def test_a_corrected_pcie_error_is_no_fault(message: str) -> None:
    assert parse_message(message) is None


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("mce: [Hardware Error]: CPU 18: Machine Check Exception: 5 Bank 7: be00000001010091", "uncorrected"),
        ("[Hardware Error]: CPU 4: Machine Check Exception:                4 Bank 4: b200000000070f0f", "uncorrected"),
        ("mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 5: fe00000000800400", "uncorrected"),
        ("[Hardware Error]: Uncorrected, software containable error.", "uncorrected"),
        ("[Hardware Error]: System Fatal error.", "fatal"),
        ("EDAC MC3: 1 UE memory read error on CPU_SrcID#0_MC#3_Chan#0_DIMM#0 (channel:0 slot:0)", "edac_ue"),
        ("EDAC MC0: UE row 0, channel-a= 0 channel-b= 1 labels", "edac_ue"),
        ("Kernel panic - not syncing: Fatal machine check", "panic"),
        ("Kernel panic - not syncing: Fatal local machine check", "panic"),
        ("Kernel panic - not syncing: Fatal Machine check", "panic"),
        ("Kernel panic - not syncing: Fatal hardware error!", "panic"),
        ("Memory failure: 0x7740c0: recovery action for dirty page: Recovered", "memory_failure"),
    ],
)
def test_what_processor_or_memory_could_not_correct_is_a_fault(message: str, code: str) -> None:
    finding = found(message)

    assert (finding.family, finding.code, finding.component) == (Family.mce, code, None)


@pytest.mark.parametrize(
    "message",
    [
        "mce: [Hardware Error]: Machine check events logged",
        "mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 5: 9c00000000800400",
        "mce: [Hardware Error]: CPU 0: Machine Check Event: 0 Bank 25: 8c00000200a00090",
        "mce: [Hardware Error]: TSC ae4b410af0b8 ADDR 314d193000 MISC 200400c008002086",
        "[Hardware Error]: Corrected error, no action required.",
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0",
        "EDAC MC0: 0 UE memory read error",
        "EDAC MC: Ver: 3.0.0",
        "Memory failure: 0x1a2b3c: Sending SIGBUS to python:4242 due to hardware memory corruption",
    ],
)
def test_what_was_corrected_is_no_machine_fault(message: str) -> None:
    assert parse_message(message) is None


@pytest.mark.parametrize(
    ("message", "code", "component", "pid"),
    [
        ("Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)", "kernel_panic", None, None),
        ("Kernel panic - not syncing: Attempted to kill init! exitcode=0x0000000b", "kernel_panic", None, None),
        ("Oops: 0000 [#1] PREEMPT SMP NOPTI", "kernel_oops", None, None),
        ("Oops: Oops: 0002 [#3] SMP NOPTI", "kernel_oops", None, None),
        (
            "general protection fault, probably for non-canonical address 0xdead000000000108: 0000 [#1] SMP NOPTI",
            "kernel_oops",
            None,
            None,
        ),
        ("invalid opcode: 0000 [#1] PREEMPT SMP PTI", "kernel_oops", None, None),
        ("Internal error: Oops: 0000000096000004 [#1] SMP", "kernel_oops", None, None),
        ("Internal error: Oops: 0000000096000004 [#1]  SMP", "kernel_oops", None, None),  # arm64 since Linux 6.15
        ("Internal error: synchronous external abort: 0000000096000210 [#1] PREEMPT SMP", "kernel_oops", None, None),
        (
            "watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [python3:2254956]",
            "soft_lockup",
            None,
            None,
        ),
        ("NMI watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [kworker/0:1:88]", "soft_lockup", None, None),
        ("watchdog: Watchdog detected hard LOCKUP on cpu 3", "hard_lockup", None, None),
        ("watchdog: CPU3: Watchdog detected hard LOCKUP on cpu 3", "hard_lockup", None, None),
        ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 1", "hard_lockup", None, None),
        ("INFO: task kworker/u96:3:4711 blocked for more than 122 seconds.", "hung_task", None, 4711),
        ("INFO: task jbd2/nvme1n1p4-:923 blocked in I/O wait for more than 122 seconds.", "hung_task", None, 923),
        ("nvme nvme0: I/O 12 QID 3 timeout, reset controller", "nvme_timeout", "nvme0", None),
        ("nvme nvme4: controller is down; will reset: CSTS=0x3, PCI_STATUS=0x10", "nvme_down", "nvme4", None),
        (
            "nvme nvme1: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS read failed",
            "nvme_down",
            "nvme1",
            None,
        ),
        ("nvme nvme12: Device not ready; aborting reset, CSTS=0x1", "nvme_down", "nvme12", None),
        ("nvme nvme0: resetting controller due to persistent internal error", "nvme_down", "nvme0", None),
        (
            "nvme nvme4: I/O tag 22 (2016) opcode 0x2 (Admin Cmd) QID 0 timeout, reset controller",
            "nvme_timeout",
            "nvme4",
            None,
        ),
        (
            "nvme nvme1: I/O tag 9 (1009) QID 7 timeout, aborting req_op:READ(0) size:4096",
            "nvme_timeout",
            "nvme1",
            None,
        ),
        ("nvme nvme1: Disabling device after reset failure: -19", "nvme_failed", "nvme1", None),
        ("nvme nvme1: Removing after probe failure status: -19", "nvme_failed", "nvme1", None),
        (
            "I/O error, dev nvme1n1, sector 499204104 op 0x1:(WRITE) flags 0x0 phys_seg 1 prio class 0",
            "disk_io_error",
            "nvme1n1",
            None,
        ),
        ("blk_update_request: I/O error, dev sda, sector 2048 op 0x0:(READ) flags 0x0", "disk_io_error", "sda", None),
        ("critical medium error, dev sdb, sector 8 op 0x0:(READ) flags 0x0 phys_seg 1", "disk_io_error", "sdb", None),
        ("print_req_error: I/O error, dev nvme0n1, sector 0", "disk_io_error", "nvme0n1", None),
        (
            "XFS (nvme1n1): Corruption of in-memory data (0x8) detected at xfs_trans_cancel+0x133/0x160 "
            "(fs/xfs/xfs_trans.c:1097).  Shutting down filesystem.",
            "filesystem_stopped",
            "nvme1n1",
            None,
        ),
        ("XFS (dm-0): Filesystem has been shut down due to log error (0x2).", "filesystem_stopped", "dm-0", None),
        ("XFS (dm-0): Log I/O Error Detected.  Shutting down filesystem", "filesystem_stopped", "dm-0", None),
        ("EXT4-fs (nvme1n1p1): Remounting filesystem read-only", "filesystem_stopped", "nvme1n1p1", None),
        ("BTRFS info (device sdb: state E): forced readonly", "filesystem_stopped", "sdb", None),
        ("BTRFS info (device nvme0n1p2): forced readonly", "filesystem_stopped", "nvme0n1p2", None),
        ("nfs: server 10.0.0.5 not responding, still trying", "nfs_not_responding", "10.0.0.5", None),
        (
            "nfs: server fs-0a1b.efs.eu-west-1.amazonaws.com not responding, timed out",
            "nfs_not_responding",
            "fs-0a1b.efs.eu-west-1.amazonaws.com",
            None,
        ),
        (
            "pt_main_thread[2536443]: segfault at 7f797fe00000 ip 00007f7c7ac69996 sp 00007f7c12fd7c30 error 4 in "
            "libnccl.so.2[7f7c7ac00000+d3d3000]",
            "nccl_segfault",
            None,
            2536443,
        ),
        ("ice 0000:17:00.0 ens1f0: NIC Link is Down", "nic_link_down", "0000:17:00.0", None),
        ("i40e 0000:18:00.0 eth2: NIC Link is Down", "nic_link_down", "0000:18:00.0", None),
        ("bnxt_en 0000:19:00.0 enp25s0f0np0: NIC Link is Down", "nic_link_down", "0000:19:00.0", None),
        (
            "ena 0000:00:05.0 eth0: Keep alive watchdog timeout, 6000 msecs since last keep alive.",
            "nic_stalled",
            "0000:00:05.0",
            None,
        ),
        (
            "ena 0000:00:05.0 ens5: [1/2] Lost TX completions are above threshold (129 > 128), completion",
            "nic_stalled",
            "0000:00:05.0",
            None,
        ),
        # Linux, drivers/net/ethernet/amazon/ena/ena_netdev.c, and older drivers: amzn-drivers issue 134.
        (
            "ena 0000:00:05.0 ens5: Lost TX completions are above the threshold (129 > 128). Completion transmission "
            "timeout: 5000.",
            "nic_stalled",
            "0000:00:05.0",
            None,
        ),
        (
            "ena 0000:00:05.0 ens5: The number of lost tx completions is above the threshold (248 > 128). Reset the "
            "device",
            "nic_stalled",
            "0000:00:05.0",
            None,
        ),
        (
            "ena 0000:00:05.0 ens5: Lost TX completions are above the threshold (129 > 128). Completion transmission "
            "timeout: 5000.",
            "nic_stalled",
            "0000:00:05.0",
            None,
        ),
        (
            "CPU12: Core temperature is above threshold, cpu clock is throttled (total events = 1)",
            "cpu_throttled",
            None,
            None,
        ),
        (
            "mce: CPU3: Package temperature above threshold, cpu clock throttled (total events = 7)",
            "cpu_throttled",
            None,
            None,
        ),
    ],
)
def test_the_kernels_own_words_about_the_host_are_read_and_only_recorded_at_first(
    message: str, code: str, component: str | None, pid: int | None
) -> None:
    finding = found(message)

    assert (finding.family, finding.code, finding.component, finding.pid) == (Family.host, code, component, pid)
    row = find(Family.host, code)
    assert row is not None
    assert row.action is Action.OBSERVE


@pytest.mark.parametrize(
    "message",
    [
        "BUG: kernel NULL pointer dereference, address: 0000000000000000",  # the line with the count follows
        "---[ end Kernel panic - not syncing: Fatal exception ]---",
        "watchdog: CPU0: soft watchdog enabled",
        "INFO: lockdep is turned off.",
        "nvme nvme0: 32/0/0 default/read/poll queues",
        "nvme nvme0: resetting controller",
        "I/O error, dev fd0, sector 0 op 0x0:(READ) flags 0x0",
        "I/O error, dev sr0, sector 0 op 0x0:(READ) flags 0x0",
        "I/O error, dev loop4, sector 8 op 0x0:(READ) flags 0x0",
        "Buffer I/O error on dev nvme1n1, logical block 0, async page read",  # the line of the disk came before
        "XFS (nvme1n1): Mounting V5 Filesystem",
        "XFS (dm-3): User initiated shutdown received. Shutting down filesystem",
        "XFS (loop5): Filesystem has been shut down due to log error (0x2).",
        "EXT4-fs (nvme1n1): mounted filesystem 3f5e1c2a with ordered data mode. Quota mode: none.",
        "nfs: server 10.0.0.5 OK",
        "python3[99]: segfault at 0 ip 00007f7c7ac69996 sp 00007f7c12fd7c30 error 4 in libtorch.so[7f7c7ac00000]",
        "ice 0000:17:00.0 ens1f0: NIC Link is up 100 Gbps Full Duplex",
        "e1000e 0000:00:19.0 eth0: NIC Link is Down",
        "ena 0000:00:05.0 eth0: Elastic Network Adapter (ENA) found",
        "CPU12: Core temperature/speed normal (total events = 1)",
    ],
)
def test_what_the_kernel_says_of_a_healthy_host_is_no_fault(message: str) -> None:
    assert parse_message(message) is None


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("Out of memory: Killed process 4711 (python3) total-vm:1234kB, anon-rss:99kB", "oom_kill"),
        ("Out of memory: Kill process 4711 (python3) score 900 or sacrifice child", "oom_kill"),
        ("Out of memory (oom_kill_allocating_task): Killed process 4711 (python3) total-vm:1kB", "oom_kill"),
        ("Memory cgroup out of memory: Killed process 4711 (python3) total-vm:1234kB", "oom_kill_cgroup"),
        ("Memory cgroup out of memory: Kill process 4711 (python3) score 1999 or sacrifice child", "oom_kill_cgroup"),
    ],
)
def test_a_kill_for_want_of_memory_names_the_process(message: str, code: str) -> None:
    finding = found(message)

    assert (finding.family, finding.code, finding.pid) == (Family.oom, code, 4711)


@pytest.mark.parametrize(
    "message",
    [
        "python3 invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=0",
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task=python3,pid=4711,uid=0",
        "Killed process 4711 (python3) total-vm:1234kB, anon-rss:99kB",
        "oom_reaper: reaped process 4711 (python3), now anon-rss:0kB",
        "Tasks state (memory values in pages):",
    ],
)
def test_one_kill_is_one_finding_however_many_lines_tell_of_it(message: str) -> None:
    assert parse_message(message) is None


FAULTS = (
    "NVRM: Xid (PCI:0000:b9:00): 79, pid=1",
    "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
    "NVRM: GPU 0000:04:00.0: GPU has fallen off the bus.",
    "efa 0000:00:1d.0: Admin queue is closed",
    "mlx5_core 0000:5e:00.0 ens1f0np0: Link down",
    "pcieport 0000:00:1c.0: pciehp: Slot(0-1): Link Down",
    "EDAC MC0: 1 UE memory read error",
    "Oops: 0000 [#1] SMP NOPTI",
    "I/O error, dev nvme1n1, sector 8 op 0x1:(WRITE) flags 0x0",
    "XFS (dm-0): Log I/O Error Detected.  Shutting down filesystem",
    "Out of memory: Killed process 4711 (python3) total-vm:1234kB",
)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("quote", ["my program prints: ", "audit: type=1400 ", "systemd[1]: ", "usb 1-1: ", "kernel: "])
def test_a_fault_that_somebody_quotes_is_no_fault(quote: str, fault: str) -> None:
    assert parse_message(fault) is not None

    assert parse_message(quote + fault) is None


def test_a_message_is_cut_before_any_pattern_sees_it() -> None:
    finding = parse_message("NVRM: Xid (PCI:0000:b9:00): 79, " + "x" * 20_000)

    assert finding is not None
    assert len(finding.message) == 8192


@pytest.mark.parametrize("page", ["clean LRU page", "free buddy page"])
def test_a_page_that_nobody_needed_is_no_fault(page: str) -> None:
    assert parse_message(f"Memory failure: 0x7740c0: recovery action for {page}: Recovered") is None


@pytest.mark.parametrize(
    ("seconds", "action"), [(22, Action.OBSERVE), (299, Action.OBSERVE), (300, Action.REBOOT), (3102, Action.REBOOT)]
)
def test_a_lockup_is_judged_by_its_seconds(seconds: int, action: Action) -> None:
    finding = found(f"watchdog: BUG: soft lockup - CPU#3 stuck for {seconds}s! [ksoftirqd/3:31]")

    row = find(finding.family, finding.code, finding.subcode)
    assert row is not None
    assert (finding.code, row.action) == ("soft_lockup", action)
