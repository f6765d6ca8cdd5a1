"""The NVLink map of a rack, compute tray to switch tray, from the ports that the fabric manager reports."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rackyard.fabric.facts import NvEnd, NvPortFact
from rackyard.fabric.healthmask import letters
from rackyard.fabric.model import Health, NvCable, SwitchTray

_DISCOVERED = "discovered"
_ACTIVE = frozenset({"", "nochange", "active", "actdefer", "up"})
_LINKED = frozenset({"", "nochange", "linkup", "up"})


@dataclass(frozen=True, slots=True)
class NvMap:
    """Switch trays and cables by rack."""

    trays: Mapping[str, tuple[SwitchTray, ...]] = field(default_factory=dict)
    cables: Mapping[str, tuple[NvCable, ...]] = field(default_factory=dict)


def nvlink_map(ports: Iterable[NvPortFact], rack_of: Mapping[str, str], seats: Mapping[tuple[str, int], str]) -> NvMap:
    """`rack_of` maps a chassis serial to its rack, `seats` (chassis, compute tray) to the node that stands there."""
    ends: dict[str, NvEnd] = {}
    wired: dict[tuple[str, int], NvPortFact] = {}
    for port in ports:
        if port.expectation == _DISCOVERED:
            ends[port.end.uid] = port.end
            wired[port.end.uid, port.port] = port
    trays: dict[str, dict[int, list[NvEnd]]] = defaultdict(lambda: defaultdict(list))
    for end in ends.values():
        if end.kind == "switch":
            trays[rack_of.get(end.chassis, end.chassis)][end.slot].append(end)
    names = {
        (rack, slot): f"{rack}-s{number}"
        for rack, slots in trays.items()
        for number, slot in enumerate(sorted(slots), 1)
    }
    cables: dict[str, list[NvCable]] = defaultdict(list)
    for (uid, number), port in wired.items():
        end, far = ends[uid], ends.get(port.peer_uid)
        if end.kind != "gpu" or far is None or far.kind != "switch":
            continue
        rack = rack_of.get(far.chassis, far.chassis)
        node = end.node or seats.get((end.chassis, end.tray), f"{end.chassis}/{end.tray}")
        back = wired.get((far.uid, port.peer_port))
        up = is_up(port) and (back is None or is_up(back))
        plane = -1 if port.plane is None else port.plane
        tray = names[rack, far.slot]
        cables[rack].append(NvCable(node, end.device, number, tray, far.device, port.peer_port, plane, up))
    return NvMap(
        {
            rack: tuple(
                SwitchTray(names[rack, slot], rack, slot, len(asics), _health(asics))
                for slot, asics in sorted(slots.items())
            )
            for rack, slots in trays.items()
        },
        {rack: tuple(sorted(found, key=lambda c: (c.node, c.gpu, c.port))) for rack, found in cables.items()},
    )


def is_up(port: NvPortFact) -> bool:
    """Whether the link works by every state that was given. The spellings are those of NMX-C and NMX-M (`STATE_ACTIVE`,
    `LINKUP`) and of InfiniBand tools (`Active`, `LinkUp`); NO_CHANGE is how NMX-M says nothing.
    """
    logical, physical = letters(port.logical or ""), letters(port.physical or "")
    return logical.removeprefix("state") in _ACTIVE and physical in _LINKED


def _health(asics: Iterable[NvEnd]) -> Health:
    words = {asic.health.lower() for asic in asics}
    if words == {"healthy"}:
        return Health.HEALTHY
    return Health.UNKNOWN if words <= {"", "healthy", "unknown"} else Health.DEGRADED
