"""What nvidia-smi's values mean, whichever way it was asked: CSV, `-q` text and XML share these.

Names of fields: `nvidia-smi --help-query-gpu`. Values that are not there stand in brackets in CSV (`[N/A]`,
`[Not Supported]`, `[Unknown Error]`) and bare in `-q` (`N/A`); all of them become None.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from rackyard.fabric.facts import GpuFact, Source
from rackyard.fabric.healthmask import health_row, letters, mask_of_words
from rackyard.findings import Finding, Severity, Verdict

_NOT_SAID = frozenset(
    (
        "",
        "n/a",
        "none",
        "not supported",
        "not available",
        "unknown error",
        "requested functionality has been deprecated",
    )
)
_BUS = re.compile(r"(?:0x)?([0-9A-Fa-f]{1,8}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})\.([0-7])")
_NUMBER = re.compile(r"(\d{1,15})(?:x|\s*MiB)?")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_GUID = re.compile(r"0x([0-9a-fA-F]{1,16})")
_STATES = {
    "not supported": "not-supported",
    "not started": "not-started",
    "in progress": "in-progress",
    "completed": "completed",
}
_SUMMARIES = {"healthy": "healthy", "unhealthy": "unhealthy", "limited capacity": "limited-capacity"}
_COMPLAINTS = re.compile(
    r"\s*(?:Unable to determine the device handle for|No devices were found|NVIDIA-SMI has failed|"
    r"Failed to initialize NVML)"
)


@lru_cache(4096)
def said(text: str) -> str | None:
    """The text without blanks, or None where nvidia-smi has nothing to say."""
    text = text.strip()
    if text[:1] == "[" or text.lower() in _NOT_SAID:
        return None
    return text


@lru_cache(4096)
def bus_id(text: str) -> str | None:
    """`00000008:06:00.0` as Linux writes it: `0008:06:00.0`, lower case. None when it is no PCI address."""
    match = _BUS.fullmatch(text.strip())
    return f"{int(match[1], 16):04x}:{match[2]}:{match[3]}.{match[4]}".lower() if match else None


@lru_cache(4096)
def number(text: str) -> int | None:
    """A count, also with its unit (`189471 MiB`, `16x`); None when there is none."""
    match = _NUMBER.fullmatch(text.strip())
    return int(match[1]) if match else None


@lru_cache(4096)
def cluster_uuid(text: str) -> str | None:
    """A UUID in lower case; None when it is none. All zeros is an answer: an HGX server says Completed with it."""
    text = text.strip().lower()
    return text if _UUID.fullmatch(text) else None


@lru_cache(64)
def fabric_state(text: str) -> str | None:
    """not-supported, not-started, in-progress or completed; None for anything else, such as N/A."""
    return _STATES.get(text.strip().strip("[]").lower())


def health_summary(text: str) -> str | None:
    """healthy, unhealthy or limited-capacity; None for anything else, such as N/A."""
    return _SUMMARIES.get(text.strip().lower())


def fabric_guid(text: str) -> str | None:
    """`0x593ac6c850427ec6` as 16 hex digits; None when it is zero or no number."""
    match = _GUID.fullmatch(text.strip())
    return match[1].lower().rjust(16, "0") if match and int(match[1], 16) else None


Convert = Callable[[str], Any]

GPU_FIELDS: dict[str, tuple[str, Convert]] = {
    "index": ("index", number),
    "uuid": ("uuid", said),
    "name": ("product", said),
    "bus_id": ("pci", bus_id),
    "memory": ("memory_mib", number),
    "vbios": ("vbios", said),
    "gen": ("pci_gen", number),
    "gen_max": ("pci_gen_max", number),
    "width": ("pci_width", number),
    "width_max": ("pci_width_max", number),
    "state": ("fabric_state", fabric_state),
    "status": ("fabric_status", said),
    "clique": ("clique_id", number),
    "cluster": ("cluster_uuid", cluster_uuid),
    "summary": ("health_summary", health_summary),
    "chassis": ("chassis", said),
    "slot": ("slot", number),
    "tray": ("tray", number),
    "host": ("host_id", number),
    "module": ("module_id", number),
    "guid": ("fabric_guid", fabric_guid),
}
"""Our short name of a value: the attribute of GpuFact and how its text is read."""


def gpu_fact(node: str, source: Source, found: dict[str, Any], health: Mapping[str, str]) -> GpuFact | None:
    """A GPU from attributes of GpuFact and the rows of its Health block. None when nothing says which GPU it is."""
    if found.get("uuid") is None and found.get("pci") is None and found.get("index") is None:
        return None
    if health:
        rows = {row: word for row, text in health.items() if (word := health_word(row, text)) is not None}
        found["health_mask"] = mask_of_words(rows)
    return GpuFact(node=node, source=source, **found)


def health_word(row: str, text: str) -> str | None:
    """What a row of the Health block says. Here `None` is an answer: no configuration is wrong."""
    if health_row(row) == "incorrect_configuration" and letters(text) == "none":
        return "none"
    return said(text)


def complaint(line: str) -> bool:
    """Whether the line is nvidia-smi saying that it can't reach a GPU, or any."""
    return _COMPLAINTS.match(line) is not None


def unreachable(node: str, source: Source) -> Finding:
    """The finding for a GPU, or a driver, that nvidia-smi could not reach."""
    return Finding(
        "fabric/gpu-unreachable",
        Verdict.FAIL,
        Severity.ERROR,
        node or source.file,
        "nvidia-smi could not reach a GPU",
        (source.evidence(),),
        "Look for an Xid in the kernel log; a GPU that has fallen off the bus needs a power cycle of the tray.",
    )
