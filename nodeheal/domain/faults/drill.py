"""A drill in DCGM: an injected value in one of the fields that DCGM's clients watch."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

# As NVIDIA's dcgmlib/dcgm_fields.h numbers and describes them.
FIELDS: Mapping[str, tuple[int, str]] = {
    "inforom_valid": (84, "whether the InfoROM is valid, 0 for not"),
    "pcie_replay": (202, "PCIe replays"),
    "xid": (230, "the last XID"),
    "ecc_dbe": (311, "double-bit ECC errors since the driver was loaded"),
    "ecc_dbe_memory": (319, "the same, of device memory alone"),
}
LARGEST_FIELD = 65_535  # an unsigned short in DCGM
LARGEST_GPU = 255
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,6})?")


@dataclass(frozen=True)
class DcgmDrill:
    """The value, the field and the GPU, by DCGM's ids."""

    gpu: int
    field: int
    value: str

    def __str__(self) -> str:
        known = next((about for number, about in FIELDS.values() if number == self.field), "")
        return f"GPU {self.gpu}, field {self.field}{f' ({known})' if known else ''}: {self.value}"


def parse_dcgm_drill(text: str, gpu: int) -> DcgmDrill:
    """Reads `xid=79` or `230=79`. Raises ValueError that names the known fields."""
    name, _, value = (part.strip() for part in text.partition("="))
    number = FIELDS[name][0] if name in FIELDS else int(name) if name.isascii() and name.isdigit() else 0
    if not 0 < number <= LARGEST_FIELD:
        known = ", ".join(f"{known} ({number})" for known, (number, _) in FIELDS.items())
        raise ValueError(f"--dcgm {text}: {name!r} is not a field; give one of {known}, or DCGM's own number")
    if not _NUMBER.fullmatch(value):
        raise ValueError(f"--dcgm {text}: give FIELD=NUMBER, for example xid=79")
    return DcgmDrill(gpu, number, value)
