"""Extracts measurements from the tools' output: numbers by the names of contract/measures.py. Pure."""

import re

_NUMBER = r"(\d{1,7}(?:\.\d{1,6})?)"
_PCIE = re.compile(rf"(GPU to Host|Host to GPU|bidirectional) bandwidth:\s{{0,8}}{_NUMBER} GB/s")
_NCCOM = re.compile(rf"Avg bus bandwidth:\s{{0,20}}{_NUMBER} ?GB/s")
# A line of stress-ng's list of thermal zones: the zone's name and its heat, repeated in Kelvin.
_HEAT = re.compile(rf"\s{_NUMBER} (?:°)?C \({_NUMBER} K\)")


def dcgm_bandwidths(output: str) -> dict[str, float]:
    """Return the slowest GPU's PCIe bandwidths, where `dcgmi diag` prints them (level 2 and up; not every version
    does).
    """
    slowest: dict[str, float] = {}
    for way, number in _PCIE.findall(output.replace("\\t", "\t")):
        name = f"pcie_{way.lower().replace(' ', '_')}_gb_per_s"
        slowest[name] = min(float(number), slowest.get(name, float(number)))
    return slowest


def collective_bandwidth(output: str) -> dict[str, float]:
    """Return nccom-test's bandwidth of an all-reduce over the node's own cores."""
    bandwidths = _NCCOM.findall(output)
    return {"neuron_all_reduce_gb_per_s": float(bandwidths[-1])} if bandwidths else {}


def heat(output: str) -> dict[str, float]:
    """Return the hottest thermal zone in stress-ng's list."""
    temperatures = [float(celsius) for celsius, _ in _HEAT.findall(output)]
    return {"hottest_zone_celsius": max(temperatures)} if temperatures else {}
