"""Kernel lines of a PCIe report."""


def report(severity: str, *sections: str, number: int = 1, section_severity: str = "") -> list[str]:
    """The lines of one report; each section is its lines.

    Linux 5.15, drivers/acpi/apei/ghes.c, __ghes_print_estatus, and drivers/firmware/efi/cper.c, cper_estatus_print.
    """
    head = [
        "Hardware error from APEI Generic Hardware Error Source: 5",
        f"event severity: {severity}",
    ]
    body = [
        line
        for index, section in enumerate(sections)
        for line in (f" Error {index}, type: {section_severity or severity}", *section.splitlines())
    ]
    return [f"{{{number}}}[Hardware Error]: {line}" for line in head + body]


def pcie(address: str) -> str:
    """Linux 5.15, drivers/firmware/efi/cper.c, cper_print_pcie."""
    return (
        "  section_type: PCIe error\n  port_type: 4, root port\n  version: 3.0\n  command: 0x0547, status: 0x4010\n"
        f"  device_id: {address}\n  slot: 25\n  secondary_bus: 0xca\n  vendor_id: 0x8086, device_id: 0x347a\n"
        "  class_code: 060400\n  bridge: secondary_status: 0x2800, control: 0x0013"
    )
