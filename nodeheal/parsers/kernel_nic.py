"""Parses the kernel's messages about the fabric's adapters: EFA, and ConnectX (mlx5). Pure."""

import re

from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding
from nodeheal.parsers.pci_address import PCI_ADDRESS, normalised

# efa 0000:00:1d.0 rdmap0s29: …   mlx5_core 0000:5e:00.0 ens1np0: …   mlx5_core 0000:5e:00.0: poll_health:825:(pid 0): …
_ADAPTER = re.compile(
    rf"(?P<driver>efa|mlx5_core) (?P<address>{PCI_ADDRESS})(?: \S{{1,32}}(?: \(unregistered\))?)?: "
    r"(?:[a-z][a-z0-9_]{1,63}:\d{1,6}:? ?(?:\(pid \d{1,10}\): )?)?(?P<text>.{0,512})",
    re.ASCII,
)
# NETDEV WATCHDOG: ens1np0 (mlx5_core): transmit queue 3 timed out
_WATCHDOG = re.compile(r"NETDEV WATCHDOG: (?P<name>\S{1,32}) \(mlx5_core\): transmit queue", re.ASCII)
_PROBE = re.compile(rf"(?P<driver>efa|mlx5_core): probe of (?P<address>{PCI_ADDRESS}) failed with error ", re.ASCII)

# The steps of efa_probe and efa_enable_msix that may fail.
_PROBE_STEPS = (
    r"EFA device init failed|Failed to (?:enable MSI-X|init readless MMIO|remap register bar|request irq )"
    r"|(?:Doorbells BAR|BARs) unavailable|pci_(?:enable_device_mem|request_selected_regions)\b.{0,40}? failed"
)
_FAULTS = {
    "efa": (
        (re.compile(r"The device didn't send any completion for admin cmd"), "admin_timeout"),
        (re.compile(r"Wait for completion \(polling\) timeout"), "admin_timeout"),
        (re.compile(r"The device sent a completion but the driver didn't receive any MSI-X"), "missed_interrupt"),
        (re.compile(r"Admin queue is closed"), "admin_queue_closed"),
        (re.compile(r"Reading register (?:timed out|failed)"), "register_read_failed"),
        (re.compile(r"Device isn't ready, "), "device_not_ready"),
        (re.compile(r"Reset indication didn't turn "), "reset_failed"),
        (re.compile(r"Keep alive watchdog timeout"), "keep_alive_missing"),
        (re.compile(r"probe with driver efa failed"), "probe_failed"),
        (re.compile(_PROBE_STEPS), "probe_failed"),
    ),
    "mlx5_core": (
        (re.compile(r"device's health compromised"), "health_poll_failed"),
        (re.compile(r"Fatal error \d{1,6} detected", re.ASCII), "fatal_error"),
        (re.compile(r"(?:INFO: )?synd 0x8: "), "unrecoverable_error"),
        (re.compile(r"(?:INFO: )?synd 0x10: "), "high_temperature"),
        (re.compile(r"(?:INFO: )?synd 0x(?!0{1,8}:)[0-9a-f]{1,8}: "), "fatal_assert"),
        # Severities are the kernel's: 0 to 3 are errors and worse.
        (re.compile(r"Health issue observed, .{1,128}? severity\([0-3]\)"), "health_issue"),
        (re.compile(r".{1,80}? timeout\. Will cause a leak of a command resource"), "cmd_timeout"),
        (re.compile(r"Detected insufficient power on the PCIe slot"), "insufficient_power"),
        (re.compile(r"Link down"), "link_down"),
        (re.compile(r"Port module event(?:\[error\])?: module \d{1,3}, Cable unplugged", re.ASCII), "cable_unplugged"),
        (re.compile(r"Port module event(?:\[error\]: |: module \d{1,3}, Cable error)", re.ASCII), "cable_error"),
        (re.compile(r"High [Tt]emperature"), "high_temperature"),
        (re.compile(r"TX timeout (?:detected|on queue)"), "tx_timeout"),
        (re.compile(r"RX timeout on channel"), "rx_timeout"),
        (re.compile(r"NETDEV WATCHDOG: .{0,32}?transmit queue"), "tx_timeout"),
        (re.compile(r"mlx5_(?:init|load)_one failed with error"), "init_failed"),
        (re.compile(r"Firmware over \d{1,9} MS in (?:pre-)?initializing state, aborting", re.ASCII), "init_failed"),
        (re.compile(r"probe with driver mlx5_core failed"), "probe_failed"),
        (re.compile(r"(?:health recovery|reset reload) flow aborted|health recovery failed"), "recovery_failed"),
        (re.compile(r"Driver is in error state\. Unloading"), "recovery_failed"),
        (re.compile(r"\w{1,64}\(0x[0-9a-f]{1,8}\) timed out while waiting for a slot"), "cmd_timeout"),
    ),
}
# The kernel function that prints a command's failure is its only mark; the rest varies by command.
_COMMAND_FAILED = re.compile(r": (?:mlx5_)?cmd_(?:out_err|check|status_err):\d{1,6}:", re.ASCII)
_FAMILY = {"efa": Family.efa, "mlx5_core": Family.ib}


def parse_nic(message: str) -> Finding | None:
    """Return a fault that an adapter's driver reports; informational messages are none."""
    if not message.startswith(("efa", "mlx5_core", "NETDEV WATCHDOG")):
        return None
    adapter = _ADAPTER.match(message)
    if adapter is not None:
        driver = adapter["driver"]
        code = next((code for words, code in _FAULTS[driver] if words.match(adapter["text"])), None)
        if code is None and driver == "mlx5_core" and _COMMAND_FAILED.search(message[:256]):
            code = "cmd_failed"
        return None if code is None else Finding(_FAMILY[driver], code, normalised(adapter["address"]), message)
    probe = _PROBE.match(message)
    if probe is not None:
        return Finding(_FAMILY[probe["driver"]], "probe_failed", normalised(probe["address"]), message)
    watchdog = _WATCHDOG.match(message)
    return Finding(Family.ib, "tx_timeout", watchdog["name"], message) if watchdog else None
