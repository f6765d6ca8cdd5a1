"""What an NCCL log (NCCL_DEBUG=INFO) says of the NVLink fabric: one GPU of each process, its clique and its place.

Lines read (src/init.cc, NCCL 2.21 to 2.30): `MNNVL busId 0x… fabric UUID h.h cliqueId 0x… state n healthMask 0x…`, and
from 2.28 on `MNNVL rack serial … slot … tray … hostId … peerType … moduleId …` just before it. NCCL prints the UUID as
two long integers of a little-endian machine; the bytes are put back in order here, as nvidia-smi and labels write it.
"""

import re
import uuid

from rackyard.fabric.facts import FABRIC_STATES, Facts, GpuFact, HostFact, Source
from rackyard.fabric.readers.reader import Capture, Reader, text_of

NAME = "nccl-log"

_PREFIX = re.compile(
    r"^(?:\[\S+\] )?(?P<host>[A-Za-z0-9][\w.-]*):(?P<pid>\d+):\d+ \[(?P<gpu>\d+)\] NCCL (?:INFO|WARN) "
)
_FABRIC = re.compile(
    r"MNNVL busId 0x(?P<bus>[0-9a-f]{1,15}) fabric UUID (?P<one>[0-9a-f]{1,16})\.(?P<two>[0-9a-f]{1,16})"
    r" cliqueId 0x(?P<clique>[0-9a-f]{1,8}) state (?P<state>\d) healthMask 0x(?P<mask>[0-9a-f]{1,8})"
)
_PLACE = re.compile(
    r"MNNVL rack serial (?P<serial>\S*) slot (?P<slot>\d{1,4}) tray (?P<tray>\d{1,4}) hostId (?P<host>\d{1,4})"
    r" peerType \d+ moduleId (?P<module>\d{1,4})"
)


def _knows(head: str, file: str) -> bool:
    return " NCCL INFO " in head


def read(capture: Capture) -> Facts:
    """A GpuFact for each MNNVL line; lines of anything else are passed over, for logs hold everybody's output."""
    facts = Facts()
    places: dict[tuple[str, str], re.Match[str]] = {}
    hosts: dict[str, Source] = {}
    for number, line in enumerate(text_of(capture).split("\n"), 1):
        prefix = _PREFIX.match(line)
        if prefix is None:
            continue
        process = (prefix["host"], prefix["pid"])
        hosts.setdefault(prefix["host"], Source(NAME, capture.file, number, line[:400]))
        if place := _PLACE.match(line, prefix.end()):
            places[process] = place
        elif fabric := _FABRIC.match(line, prefix.end()):
            source = Source(NAME, capture.file, number, line[:400])
            facts.gpus.append(_gpu(prefix, fabric, places.get(process), source))
    facts.hosts += [HostFact(node=host, source=source) for host, source in hosts.items()]
    return facts


def _gpu(prefix: re.Match[str], fabric: re.Match[str], place: re.Match[str] | None, source: Source) -> GpuFact:
    state = int(fabric["state"])
    return GpuFact(
        node=prefix["host"],
        source=source,
        pci=bdf_of(int(fabric["bus"], 16)),
        cluster_uuid=cluster_uuid(int(fabric["one"], 16), int(fabric["two"], 16)),
        clique_id=int(fabric["clique"], 16),
        fabric_state=FABRIC_STATES[state] if state < len(FABRIC_STATES) else None,
        health_mask=int(fabric["mask"], 16) or None,
        chassis=(place["serial"] or None) if place else None,
        slot=int(place["slot"]) if place else None,
        tray=int(place["tray"]) if place else None,
        host_id=int(place["host"]) if place else None,
        module_id=int(place["module"]) if place else None,
    )


def bdf_of(bus_id: int) -> str:
    """NCCL's 64-bit bus id (domain, bus, device, function; the last two a nibble each) as `dddd:bb:dd.f`."""
    return f"{bus_id >> 20:04x}:{bus_id >> 12 & 0xFF:02x}:{bus_id >> 4 & 0xFF:02x}.{bus_id & 0xF:x}"


def cluster_uuid(one: int, two: int) -> str:
    """The UUID whose bytes NCCL printed as two little-endian longs."""
    return str(uuid.UUID(bytes=one.to_bytes(8, "little") + two.to_bytes(8, "little")))


READER = Reader(NAME, _knows, read)
