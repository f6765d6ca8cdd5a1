"""The PCI side of a generated topology file: the bridges above a device, and the link as NCCL would read it."""

import re
from dataclasses import replace

from rackyard.errors import UsageError
from rackyard.fabric.model import Node, PciDevice

_ADDRESS = re.compile(r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])", re.ASCII)
_SPEEDS = {
    2.5: "2.5 GT/s PCIe",
    5.0: "5.0 GT/s PCIe",
    8.0: "8.0 GT/s PCIe",
    16.0: "16.0 GT/s PCIe",
    32.0: "32.0 GT/s PCIe",
    64.0: "64.0 GT/s PCIe",
}
"""Texts that every NCCL knows; it compares texts, so 32.0 GT/s without PCIe would count as 8."""
_WIDTHS = (1, 2, 4, 8, 16)
_HEX = re.compile(r"0x[0-9a-fA-F]{1,6}", re.ASCII)
_DEEPEST = 64


def bus_id(address: str) -> str:
    """A PCI address as sysfs writes it: lower case, four digits of domain. UsageError for what is none."""
    found = _ADDRESS.fullmatch(address.strip())
    if not found:
        raise UsageError(f"'{address}' is no PCI address", fix="write it as 0008:06:00.0")
    domain, bus, device, function = found.groups()
    return f"{int(domain or '0', 16):04x}:{bus.lower()}:{device.lower()}.{function}"


def way_up(node: Node, address: str, numa: int, pci_class: str) -> tuple[PciDevice, ...]:
    """The devices that NCCL makes elements of, from the one below the CPU down to this one. Without a tree it is this
    one, of the class given.

    From a device NCCL goes up two steps at a time in sysfs, past the port above it (src/graph/xml.cc, 2.18 to 2.30): a
    switch, two bridges to Linux, is one element.
    """
    known = {bus_id(device.bdf): device for device in node.pci}
    way: list[PciDevice] = []
    at = address
    while at in known and len(way) < _DEEPEST:
        way.insert(0, known[at])
        at = bus_id(known[at].parent) if known[at].parent else ""
    if not way:
        return (PciDevice(address, "", numa, pci_class),)
    way = way[(len(way) + 1) % 2 :: 2]
    if way[0].numa < 0 <= numa:
        way[0] = replace(way[0], numa=numa)
    return tuple(way)


def link_of(node: Node, device: PciDevice) -> dict[str, str]:
    """Class, ids, speed and width of a pci element. Unknown ones are left out, so that NCCL reads them from sysfs."""
    attrs = {"class": device.pci_class}
    for key in ("vendor", "device", "subsystem_vendor", "subsystem_device"):
        attrs[key] = getattr(device, key)
    attrs = {key: value.lower() for key, value in attrs.items() if _HEX.fullmatch(value)}
    above = next((each for each in node.pci if each.bdf == device.parent), None)
    ends = [end for end in (device, above) if end is not None]
    # A link runs at the lesser of its two ends, as NCCL reads it from sysfs.
    speeds = [speed for speed in map(_speed, ends) if speed]
    widths = [end.link_width for end in ends if end.link_width in _WIDTHS]
    if _speed(device) and speeds:
        attrs["link_speed"] = _SPEEDS[min(speeds)]
    if device.link_width in _WIDTHS:
        attrs["link_width"] = str(min(widths))
    return attrs


def _speed(device: PciDevice) -> float:
    """GT/s; 0 if not known to NCCL."""
    found = re.match(r"(\d+(?:\.\d+)?) GT/s", device.link_speed, re.ASCII)
    speed = float(found[1]) if found else 0.0
    return speed if speed in _SPEEDS else 0.0
