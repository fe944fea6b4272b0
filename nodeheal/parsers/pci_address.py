"""Normalises PCI addresses of different drivers. Pure."""

# The pattern: domain of four to eight digits, bus, device, and the function where the driver names it.
PCI_ADDRESS = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?"


def normalised(address: str) -> str:
    """Return `0000:b9:00.0` for an address that PCI_ADDRESS matches; a missing function is function 0."""
    domain, bus, rest = address.lower().split(":")
    device, _, function = rest.partition(".")
    return f"{int(domain, 16):04x}:{bus}:{device}.{function or '0'}"


def from_requester_id(requester: str, reporter: str) -> str:
    """Return the address of a device that a port names by bus, device and function in one number (`00e0`).

    The device is in the domain of the port that reports it.
    """
    number = int(requester, 16)
    domain = normalised(reporter).split(":")[0]
    return f"{domain}:{number >> 8 & 0xFF:02x}:{number >> 3 & 0x1F:02x}.{number & 7}"
