"""What names and rates mean on an InfiniBand fabric: node descriptions, link widths and link speeds.

A node description is free text of 64 bytes. The forms known here are what rdma-ndd(8) writes on hosts (`%h %d`: host
name and RDMA device), what older openibd scripts wrote (`host HCA-1`, `'host' mlx5_0`) and what managed switches write
(`MF0;system:MODEL/U1`). Everything else is taken as the name of a switch, and as nobody's name on an HCA.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rackyard.fabric.facts import Source
from rackyard.findings import Finding, Severity, Verdict

LANE_GBPS = {
    "SDR": 2.5,
    "DDR": 5.0,
    "QDR": 10.0,
    "FDR10": 10.0,
    "FDR": 14.0,
    "EDR": 25.0,
    "HDR": 50.0,
    "NDR": 100.0,
    "XDR": 200.0,
}
"""Gb/s of one lane by speed, slowest first, as Linux states it in sysfs `rate` (drivers/infiniband/core/sysfs.c) and
the InfiniBand Trade Association in its roadmap (4x: EDR 100, HDR 200, NDR 400, XDR 800 Gb/s)."""

_SIGNALLING = {
    2.5: "SDR",
    5.0: "DDR",
    10.0: "QDR",
    14.0625: "FDR",
    25.78125: "EDR",
    53.125: "HDR",
    106.25: "NDR",
    212.5: "XDR",
}
"""Speed by the Gb/s a lane signals at, encoding included, as libibmad prints it (rdma-core, libibmad/dump.c)."""

_HOST_AND_DEVICE = re.compile(r"('?)([A-Za-z0-9][\w.-]{0,252})\1 ([A-Za-z][\w.-]*[0-9][\w.-]*)")
_HOST_ALONE = re.compile(r"'?([A-Za-z0-9][\w.-]{0,252})'?")
_MANAGED_SWITCH = re.compile(r"MF0;(?P<system>[^;]*):(?P<model>[^:/]+)(?P<unit>/.*)?")
COMPLAINT = re.compile(r"ibwarn: |\S{1,200}\.c:[0-9]{1,6}[;:] ")
"""A line that infiniband-diags writes to its error output, which often ends up in the capture."""

_MAKER = re.compile(r"Mellanox|ConnectX|BlueField|InfiniHost")
_NOBODY = frozenset({"", "localhost", "localhost.localdomain"})
"""Names of no host: RFC 6761 keeps `localhost` for the loopback, and a machine is called so until it gets a name."""


class SwitchName(NamedTuple):
    """A switch's name, its model, and which chip of a chassis it is (`/L05/U1`, `/U1`); empty where not said."""

    name: str
    model: str
    unit: str


def gbps_of(width: int | None, speed: str | None) -> float | None:
    """Gb/s of a link of so many lanes; None for an unknown speed."""
    lane = LANE_GBPS.get(speed or "")
    return None if lane is None or width is None else width * lane


def speed_of(signalling: str) -> str | None:
    """`25.78125` is EDR; None for what is no such rate. Tools that round to two decimals are understood."""
    try:
        rate = float(signalling)
    except ValueError:
        return None
    return next((name for exact, name in _SIGNALLING.items() if abs(rate - exact) < 0.01), None)


def host_and_device(description: str) -> tuple[str, str]:
    """Host and RDMA device of an HCA. Both are empty for a description that was never set (`MT4129 ConnectX7   Mellanox
    Technologies`); the host is empty for `localhost`, which may be any of them."""
    if _MAKER.search(description):
        return "", ""
    match = _HOST_AND_DEVICE.fullmatch(description.rstrip())
    if match is not None:
        return ("" if match[2] in _NOBODY else match[2]), match[3]
    alone = _HOST_ALONE.fullmatch(description)
    return ("", "") if alone is None or alone[1] in _NOBODY else (alone[1], "")


def switch_name(description: str) -> SwitchName:
    """`MF0;leaf1:MQM9700/U1` is leaf1, MQM9700, /U1. The name is empty where only the maker is said."""
    match = _MANAGED_SWITCH.fullmatch(description)
    if match is not None:
        return SwitchName(match["system"].strip(), match["model"], match["unit"] or "")
    return SwitchName("" if description.rstrip().endswith("Mellanox Technologies") else description.strip(), "", "")


def switch_names(descriptions: Mapping[str, str]) -> dict[str, SwitchName]:
    """Each switch's name by its key, the GUID (`S-` before it counts for nothing). A chassis has one name for many
    chips; only there is the chip part of the name. Switches that have one name all the same carry their GUID in it.
    """
    names = {key: switch_name(description) for key, description in descriptions.items()}
    names = _apart(names, {key: name.unit for key, name in names.items()})
    return _apart(names, {key: f"-{key.removeprefix('S-')}" for key in names})


def _apart(names: Mapping[str, SwitchName], parts: Mapping[str, str]) -> dict[str, SwitchName]:
    """The names, and where several have one, each with its part behind it."""
    shared = Counter(name.name for name in names.values())
    return {
        key: name._replace(name=name.name + parts[key]) if name.name and shared[name.name] > 1 else name
        for key, name in names.items()
    }


def is_aggregation_node(description: str) -> bool:
    """Whether this is a switch's in-network reduction unit (SHARP), which shows itself as an HCA on the last port."""
    return "Aggregation Node" in description


def complained(tool: str, file: str, complaints: Sequence[Source]) -> list[Finding]:
    """The finding for a scan that met with errors: what it lists may not be all there is."""
    if not complaints:
        return []
    return [
        Finding(
            rule="fabric/scan-incomplete",
            verdict=Verdict.UNKNOWN,
            severity=Severity.WARNING,
            subject=file,
            summary=f"{tool} complained {len(complaints)} times while it scanned: links and nodes may be missing",
            evidence=tuple(source.evidence() for source in complaints[:3]),
            advice="Run it again when the fabric is quiet, with a longer timeout (-t) if it repeats.",
        )
    ]
