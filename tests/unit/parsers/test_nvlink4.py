"""The registers of XID 74: every bit that the vendor's workflow for NVLink errors names."""

import pytest

from nodeheal.contract.vocabulary import Action, Family
from nodeheal.domain.faults.catalog import find
from nodeheal.parsers.kernel_line import parse_message

# Register (from 1) and bits, as WORKFLOW_NVLINK_ERR of the vendor's XID catalog lists them, by what it says of them.
VENDOR: dict[str, dict[int, tuple[int, ...]]] = {
    "ignorable": {1: (0, 23, 30)},
    "secondary": {1: (1, 20), 4: (16, 17)},
    "parity": {1: (4, 5), 3: (0, 1, 2, 6), 5: (18, 19, 21, 22, 24, 25, 27, 28)},
    "signal": {1: (8, 9, 12, 16, 17, 24, 28, 21, 22)},
    "reset": {1: (27, 29), 3: (13, 16, 17, 18, 19), 4: (18,)},
    "ecc_limit": {5: (20, 23, 26, 29)},
}
ACTIONS = {
    "ignorable": Action.OBSERVE,
    "ecc_limit": Action.OBSERVE,
    "secondary": Action.REBOOT,
    "reset": Action.REBOOT,
    "parity": Action.REPLACE,
    "signal": Action.REPLACE,
}
BITS = [(name, register, bit) for name, bits in VENDOR.items() for register, some in bits.items() for bit in some]


def subcode(**registers: int) -> str | None:
    """Of a line whose registers r1 to r7 hold these values."""
    values = ", ".join(f"0x{registers.get(f'r{number}', 0):x}" for number in range(1, 8))
    line = "NVRM: Xid (PCI:0000:b9:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 14"
    finding = parse_message(f"{line}({values})")
    assert finding is not None
    assert (finding.code, finding.component) == ("74", "0000:b9:00.0")
    return finding.subcode


@pytest.mark.parametrize(("name", "register", "bit"), BITS)
def test_every_bit_of_the_vendors_workflow_has_its_class_and_action(name: str, register: int, bit: int) -> None:
    found = subcode(**{f"r{register}": 1 << bit})

    assert found == name
    row = find(Family.xid, "74", found)
    assert row is not None
    assert (row.subcode, row.action) == (name, ACTIONS[name])


@pytest.mark.parametrize("register", [1, 3, 4, 5])
def test_a_bit_that_the_vendor_does_not_list_asks_for_a_reset(register: int) -> None:
    listed = {bit for _, of, bit in BITS if of == register}
    unlisted = set(range(32)) - listed

    assert {subcode(**{f"r{register}": 1 << bit}) for bit in unlisted} == {"reset"}


@pytest.mark.parametrize(
    ("registers", "name"),
    [
        ({"r1": 1 << 0 | 1 << 16}, "signal"),
        ({"r1": 1 << 20, "r3": 1 << 0}, "parity"),
        ({"r1": 1 << 1, "r4": 1 << 18}, "reset"),
        ({"r1": 1 << 23, "r4": 1 << 16}, "secondary"),
        ({"r1": 1 << 0, "r5": 1 << 20}, "ecc_limit"),
        ({"r1": 1 << 4 | 1 << 16}, "signal"),
    ],
)
def test_of_several_bits_the_gravest_counts(registers: dict[str, int], name: str) -> None:
    assert subcode(**registers) == name


@pytest.mark.parametrize("register", [2, 6, 7])
def test_a_register_without_meaning_decodes_to_nothing(register: int) -> None:
    assert subcode(**{f"r{register}": 1}) is None
    assert subcode(**{f"r{register}": 1, "r1": 1}) == "ignorable"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("NVLink: fatal error detected on link 6 (0x10000,0x0,0x0,0x0,0x0,0x0,0x0)", "signal"),
        ("NVLink: fatal error detected on link 0(0x1, 0, 0, 0, 0, 0, 0)", "ignorable"),
        ("NVLink: fatal error detected on link 0(0x10000, 0x0, 0x0)", None),
        ("drill", None),
    ],
)
def test_registers_are_read_however_they_are_spaced_and_a_line_without_them_is_replaced_as_before(
    text: str, name: str | None
) -> None:
    finding = parse_message(f"NVRM: Xid (PCI:0000:b9:00): 74, {text}")

    assert finding is not None
    assert finding.subcode == name
    undecoded = find(Family.xid, "74")
    assert undecoded is not None
    assert undecoded.ladder == (Action.REPLACE,)
