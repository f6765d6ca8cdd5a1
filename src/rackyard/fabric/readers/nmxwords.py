"""The words of NVLink managers in ours: enumerations by name or number, identifiers, states and health.

Numbers and names are those of nmx_c.proto (NVIDIA infra-controller-core, crates/rpc/proto, draft of 25-Nov-2024);
NMX-M's OpenAPI (crates/libnmxm/tests/opennmxm.yaml) has the same names without prefixes such as `NMX_GPU_HEALTH_`.
"""

from functools import lru_cache

from rackyard.fabric.model import Health

Number = int | str
"""64-bit numbers are strings in protobuf's JSON, and numbers everywhere else."""

GPU_HEALTH = ("unknown", "healthy", "degraded", "no-nvlink", "degraded-bw")
SWITCH_HEALTH = ("unknown", "healthy", "missing-nvlink", "unhealthy")
NODE_HEALTH = ("unknown", "healthy", "degraded", "unhealthy")
LOGICAL = ("no-change", "down", "init", "armed", "active", "act-defer")
PHYSICAL = ("no-change", "sleep", "polling", "disabled", "portconftrain", "linkup", "linkerrrecover", "phytest")
CONNECTION = ("unknown", "active", "inactive")
CONNECTION_TYPE = ("unknown", "all", "gpu", "switch")
PORT_TYPE = ("undefined", "gpu", "switch-access", "switch-trunk", "fnm", "hca")
RETURN_CODE = ("undefined", "success")

NVLINK_PORTS = frozenset({"undefined", "gpu", "switch-access", "switch-trunk"})
"""Ports that carry NVLink traffic between GPUs. FNM and HCA ports are the manager's own."""

_NOTHING = frozenset({"unknown", "no-change"})

_NODE = {"healthy": Health.HEALTHY, "degraded": Health.DEGRADED, "unhealthy": Health.DOWN}


@lru_cache(maxsize=1024)
def word(value: Number | None, words: tuple[str, ...]) -> str:
    """The word for an enumeration's number or name; the first one for what is left out, as in protobuf; the text itself
    in lower case for what is newer than this table."""
    if value is None:
        return words[0]
    text = str(value)
    if text.isascii() and text.isdigit() and len(text) < 4:
        return words[int(text)] if int(text) < len(words) else text
    text = text.lower().replace("_", "-")
    fitting = [known for known in words if text == known or text.endswith(f"-{known}")]
    return max(fitting, key=len) if fitting else text


def state(value: Number | None, words: tuple[str, ...]) -> str | None:
    """The same for a state; None where that says nothing."""
    said = word(value, words)
    return None if said in _NOTHING else said


def logical(value: Number | None, drained: bool) -> str | None:
    """The logical state of a port; `contain-and-drain` while the manager keeps traffic off it after an error."""
    return "contain-and-drain" if drained else state(value, LOGICAL)


def whole(value: Number | None, absent: int = 0) -> int:
    """A number; `absent` for what is left out, and -1 for what is no number of at most 20 digits."""
    if value is None:
        return absent
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else -1


def uid(value: Number | None) -> str:
    """A device's identifier as 16 hex digits; empty for 0 and for what is left out, which mean no device."""
    number = whole(value)
    return f"{number:016x}" if number > 0 else ""


def node_health(value: Number | None) -> Health | None:
    """Health of a compute node: DOWN is `unhealthy`, unable to take part in NVLink."""
    return None if value is None else _NODE.get(word(value, NODE_HEALTH), Health.UNKNOWN)
