"""What the kernel's files say: numbers, rates, states and addresses, for the tree and the compact table alike.

Formats: Documentation/ABI/stable/sysfs-class-infiniband and Documentation/ABI/testing/sysfs-bus-pci of Linux.
"""

import re
from collections.abc import Collection
from functools import lru_cache

BDF = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
"""A PCI function's address as Linux writes it."""

_BDF = re.compile(BDF)
_RATE = re.compile(r"(\d{1,5}(?:\.\d{1,3})?) Gb/sec")
_GTS = re.compile(r"(\d{1,3}(?:\.\d)?) GT/s")
_STATE = re.compile(r"\d{1,2}: *(\S+)")
_HEX = re.compile(r"0[xX][0-9a-fA-F]{1,8}")
_GUID = re.compile(r"(?:0x)?[0-9a-fA-F]{16}")
_WHOLE = re.compile(r"\d{1,9}")
_LIST = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*")
_ARCH = {"aarch64": "arm64", "arm64": "arm64", "x86_64": "x86_64", "amd64": "x86_64"}


@lru_cache(8192)
def bdf_of(text: str) -> str | None:
    """A PCI address in lower case; None when it is none."""
    return text.lower() if _BDF.fullmatch(text) else None


@lru_cache(1024)
def whole(text: str) -> int | None:
    """A number from 0; None for anything else, such as the -1 of a device whose NUMA node the kernel does not know."""
    return int(text) if _WHOLE.fullmatch(text) else None


@lru_cache(1024)
def hex_of(text: str) -> str | None:
    """`0x060400` in lower case; None when it is no such number."""
    return text.lower() if _HEX.fullmatch(text) else None


@lru_cache(256)
def speed_of(text: str) -> str | None:
    """A PCI link speed as sysfs writes it (`32.0 GT/s PCIe`); None when the kernel does not know it."""
    return text if "GT/s" in text else None


_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}


@lru_cache(256)
def generation(speed: str | None) -> int | None:
    """PCI Express generation of a link speed (GT/s, PCI Express base specification): `32.0 GT/s PCIe` is 5. None for
    what is none.
    """
    found = _GTS.match(speed or "")
    return _GENERATIONS.get(float(found[1])) if found else None


@lru_cache(256)
def gbps_of(text: str) -> float | None:
    """Gb/s from a port's `rate`: `400 Gb/sec (4X NDR)`. What a port that is down shows here is the rate of no link."""
    match = _RATE.match(text)
    return float(match[1]) if match else None


@lru_cache(256)
def state_of(text: str) -> str | None:
    """The word of `4: ACTIVE` or `5: LinkUp`; None when there is none."""
    match = _STATE.fullmatch(text)
    return match[1] if match else None


def guid_of(text: str) -> str | None:
    """A GUID such as `946d:ae03:00f1:2a44` as 16 hex digits; None when it is zero or none."""
    text = text.replace(":", "").lower()
    return text.removeprefix("0x") if _GUID.fullmatch(text) and text.strip("0x") else None


@lru_cache(256)
def lanes_of(text: str) -> int | None:
    """A link's width in lanes; None for the 0 or 255 that the kernel writes when it does not know it."""
    lanes = whole(text)
    return lanes if lanes and lanes < 255 else None


@lru_cache(1024)
def cpus_of(text: str) -> str | None:
    """A list of CPUs as Linux writes it (`0-71`); None when it is empty, as that of a GPU's memory node is."""
    return text if _LIST.fullmatch(text) else None


def arch_of(machine: str) -> str | None:
    """x86_64 or arm64 from `uname -m`; None for another machine."""
    return _ARCH.get(machine.strip().lower())


def netdev_of(port: int, found: Collection[tuple[int, str]]) -> str | None:
    """The interface of port `port` (from 1) of an HCA. `found` are the interfaces at its PCI function, each with its
    number (from 0), which decides where there are several.
    """
    named = [name for number, name in found if number == port - 1 or len(found) == 1]
    return named[0] if len(named) == 1 else None
