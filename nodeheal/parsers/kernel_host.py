"""Parses the kernel's messages about the host itself: crashes, lockups, disks, file systems, NFS, network, heat. Pure.

Formats: kernel/panic.c, watchdog.c and hung_task.c; arch/*/kernel dumpstack.c, traps.c and thermal_throt.c;
drivers/nvme; block/blk-core.c; fs/xfs, ext4 and btrfs; net/sunrpc/clnt.c; the drivers ena, ice, i40e and bnxt_en.
"""

import re

from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding
from nodeheal.parsers.pci_address import PCI_ADDRESS, normalised

# Names of drives and network block devices. Floppies, optical drives and loops come and go on healthy machines.
_DISK = r"(?!fd\d|sr\d|loop)[a-z0-9_-]{1,32}"
_OOPS = (
    r"Oops|Internal error|general protection fault|invalid opcode|divide error|stack segment|double fault|int3|bounds"
    r"|alignment check|invalid TSS|segment not present"
)
_WATCHDOG = r"(?:(?:NMI )?watchdog: )?"
# One message, one fault: the names of the groups are the codes.
_FAULT = re.compile(
    "|".join(
        (
            r"(?P<kernel_panic>Kernel panic - not syncing: )",
            # Oops: 0000 [#1] PREEMPT SMP NOPTI   Internal error: Oops: 96000004 [#1] SMP   arm64 since 6.15: [#1]  SMP
            rf"(?P<kernel_oops>(?:{_OOPS})[:,] [^\[\n]{{0,160}}\[#\d{{1,6}}\] {{1,2}}(?:SMP|PREEMPT))",
            rf"(?P<soft_lockup>{_WATCHDOG}BUG: soft lockup - CPU#\d{{1,5}} stuck for (?P<seconds>\d{{1,9}})s!)",
            rf"(?P<hard_lockup>{_WATCHDOG}(?:CPU\d{{1,5}}: )?Watchdog detected hard LOCKUP on cpu ?\d)",
            r"(?P<hung_task>INFO: task .{1,64}?:(?P<task>\d{1,10}) blocked (?:in I/O wait )?for more than )",
            # nvme nvme0: controller is down; will reset: CSTS=0x3   nvme nvme0: Device not ready; aborting reset
            r"(?P<nvme_down>nvme (?P<down>nvme\d{1,4}): (?:controller is down; will reset|Device not ready; aborting "
            r"|resetting controller due to |Identify Controller failed))",
            # nvme nvme0: I/O tag 22 (2016) opcode 0x2 (Admin Cmd) QID 0 timeout, reset controller
            r"(?P<nvme_timeout>nvme (?P<timed_out>nvme\d{1,4}): I/O .{1,160}? timeout, )",
            # The second wording is that of older kernels, such as 5.10 and 5.15.
            r"(?P<nvme_failed>nvme (?P<failed>nvme\d{1,4}): "
            r"(?:Disabling device after reset failure|Removing after probe failure status): -)",
            # I/O error, dev nvme1n1, sector 8 op 0x1:(WRITE) flags   blk_update_request: I/O error, dev sda, sector 8
            r"(?P<disk_io_error>(?:(?:blk_update_request|print_req_error|end_request): )?"
            rf"(?:I/O error, dev (?P<disk>{_DISK}), sector |critical [a-z ]{{1,32}} error, dev (?P<bad_disk>{_DISK}), "
            r"sector \d{1,20} op 0x[0-9a-f]{1,4}:\((?:READ|WRITE)\) ))",
            # XFS (dm-0): Log I/O Error Detected.  Shutting down filesystem   XFS (dm-0): Filesystem has been shut down
            rf"(?P<xfs>XFS \((?P<xfs_on>{_DISK})\): (?!User initiated)"
            r"(?:.{0,200}?[Ss]hutting down filesystem|Filesystem has been shut down))",
            rf"(?P<ext>EXT[234]-fs \((?P<ext_on>{_DISK})\): Remounting filesystem read-only)",
            # BTRFS info (device sdb: state E): forced readonly
            rf"(?P<btrfs>BTRFS [a-z]{{1,16}} \(device (?P<btrfs_on>{_DISK})(?:: [^()]{{1,40}})?\): forced readonly)",
            r"(?P<nfs_not_responding>nfs: server (?P<server>\S{1,255}) not responding, (?:still trying|timed out))",
            # pt_main_thread[2536443]: segfault at 7f79 ip 7f7c sp 7f7c error 4 in libnccl.so.2[7f7c7ac00000+d3d3000]
            r"(?P<nccl_segfault>[^\[\]:\n]{1,64}\[(?P<process>\d{1,10})\]: segfault at .{1,160}? in libnccl\S{0,64})",
            rf"(?P<nic_link_down>(?:ice|i40e|bnxt_en) (?P<nic>{PCI_ADDRESS}) \S{{1,32}}: NIC Link is Down)",
            rf"(?P<nic_stalled>ena (?P<ena>{PCI_ADDRESS}) \S{{1,32}}(?: \(unregistered net_device\))?: "
            r"(?:Keep alive watchdog timeout|(?:\[1/2\] )?Lost TX completions are above (?:the )?threshold"
            r"|The number of lost tx completions is above the threshold))",
            r"(?P<cpu_throttled>(?:mce: )?CPU\d{1,5}: (?:Core|Package) temperature (?:is )?above threshold, cpu clock)",
        )
    ),
    re.ASCII,
)
# Codes that several file systems share.
_CODES = {"xfs": "filesystem_stopped", "ext": "filesystem_stopped", "btrfs": "filesystem_stopped"}
# From so many seconds on, a lockup is no passing noise: its sub-code. Tearing down the memory of a large process keeps
# a processor for a minute or two.
_LASTING_SECONDS = {"soft_lockup": 300}
LASTING = "lasting"
_COMPONENTS = ("down", "timed_out", "failed", "disk", "bad_disk", "xfs_on", "ext_on", "btrfs_on", "server")
_ADDRESSES = ("nic", "ena")
_PIDS = ("task", "process")


def parse_host(message: str) -> Finding | None:
    """Return a fault of the host from the kernel's own message."""
    match = _FAULT.match(message)
    if match is None:
        return None
    parts = {name: value for name, value in match.groupdict().items() if value is not None}
    code = next(iter(parts))
    component = next((parts[name] for name in _COMPONENTS if name in parts), None)
    address = next((normalised(parts[name]) for name in _ADDRESSES if name in parts), None)
    pid = next((int(parts[name]) for name in _PIDS if name in parts), None)
    is_lasting = code in _LASTING_SECONDS and int(parts["seconds"]) >= _LASTING_SECONDS[code]
    return Finding(
        Family.host, _CODES.get(code, code), address or component, message, LASTING if is_lasting else None, pid
    )
