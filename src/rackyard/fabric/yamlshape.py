"""Node shapes in YAML: what nodes of a kind have in common, so that each node takes one line."""

from dataclasses import dataclass, replace
from typing import Any, get_args

from rackyard.fabric import kinds
from rackyard.fabric.model import Cpu, DomainKey, Gpu, Health, Leaf, Nic, Node, NodeKind, PciDevice, Spine, SwitchTray
from rackyard.fabric.simulate import gpu_uuid, gpus_of, leaf_name, leaves_of, nics_of, rack_domain
from rackyard.fabric.yamlread import Value


@dataclass(frozen=True, slots=True)
class Shape:
    """A node without what differs from node to node: GPUs have no UUID, NICs neither leaf nor GUID, all are healthy."""

    kind: NodeKind
    gpus: tuple[Gpu, ...]
    nics: tuple[Nic, ...]
    cpus: tuple[Cpu, ...]
    pci: tuple[PciDevice, ...] = ()


def builtin() -> dict[str, Shape]:
    """The shapes that need not be written out, by GPU kind."""
    shapes = {}
    for name, known in kinds.SHAPES.items():
        gpus = gpus_of(known, ("",) * len(known.gpu_pci))
        nics = tuple(replace(nic, leaf="") for nic in nics_of(known, ""))
        shapes[name] = Shape(known.kind, gpus, nics, known.cpus, known.pci)
    return shapes


def load_shape(value: Value) -> Shape:
    """A shape as written under `shapes`."""
    found = value.fields(("kind", "gpus"), ("nics", "cpus", "pci"))
    kind: Any = found["kind"].choice(get_args(NodeKind))
    gpus = tuple(_gpu(at, part) for at, part in enumerate(found["gpus"].items()))
    nics = tuple(_nic(at, part) for at, part in enumerate(found["nics"].items())) if "nics" in found else ()
    cpus = found["cpus"].items() if "cpus" in found else []
    pci = found["pci"].items() if "pci" in found else []
    if len({gpu.index for gpu in gpus}) < len(gpus):
        found["gpus"].fail(f"two GPUs of {value.path} have the same index")
    return Shape(kind, gpus, nics, tuple(_cpu(part) for part in cpus), tuple(_pci(part) for part in pci))


def dress(
    shape: Shape, node: str, rack: str, found: dict[str, Value], simulated: bool
) -> tuple[tuple[Gpu, ...], tuple[Nic, ...]]:
    """The GPUs and NICs of one node: the shape and what its line says of them."""
    uuids = _texts(found["uuids"], len(shape.gpus)) if "uuids" in found else None
    leaves = _texts(found["leaves"], len(shape.nics)) if "leaves" in found else None
    guids = _texts(found["guids"], len(shape.nics)) if "guids" in found else [""] * len(shape.nics)
    ports = _texts(found["leaf_ports"], len(shape.nics)) if "leaf_ports" in found else [""] * len(shape.nics)
    gpu_health = _healths(found["gpu_health"], len(shape.gpus)) if "gpu_health" in found else {}
    nic_health = _healths(found["nic_health"], len(shape.nics)) if "nic_health" in found else {}
    gpus = tuple(
        replace(
            gpu,
            uuid=default_uuid(node, at, simulated) if uuids is None else uuids[at],
            health=gpu_health.get(at, Health.HEALTHY),
        )
        for at, gpu in enumerate(shape.gpus)
    )
    nics = tuple(
        replace(
            nic,
            leaf=leaf_name(nic.rail, rack) if leaves is None else leaves[at],
            health=nic_health.get(at, Health.HEALTHY),
            guid=guids[at],
            leaf_port=ports[at],
        )
        for at, nic in enumerate(shape.nics)
    )
    return gpus, nics


def default_uuid(node: str, at: int, simulated: bool) -> str:
    """The UUID of a GPU for which none is written: made up on a simulated site, else unknown."""
    return gpu_uuid(node, at) if simulated else ""


def default_switch_trays(rack: str, count: int) -> tuple[SwitchTray, ...]:
    """Switch trays of which only the number is written."""
    numbers = range(1, count + 1)
    return tuple(SwitchTray(f"{rack}-s{number}", rack, number, kinds.ASICS_PER_SWITCH_TRAY) for number in numbers)


def default_leaves(nodes: tuple[Node, ...], spines: tuple[Spine, ...], simulated: bool) -> tuple[Leaf, ...]:
    """The leaves where none are written: those that NICs end on. On a simulated site they have the simulator's
    uplinks.
    """
    if not simulated:
        return leaves_of(list(nodes), 0)
    return leaves_of(list(nodes), kinds.LEAF_UPLINKS, tuple(spine.name for spine in spines))


def default_domain(rack: str, has_switches: bool, simulated: bool) -> DomainKey | None:
    """The NVLink domain of a rack for which none is written: its own, where it has switch trays."""
    if not has_switches:
        return None
    return rack_domain(rack) if simulated else DomainKey(f"rack:{rack}", 1)


def _gpu(at: int, value: Value) -> Gpu:
    found = value.fields(("kind",), ("index", "pci", "numa", "nvlinks", "memory_gib"))
    known = kinds.SHAPES.get(found["kind"].text())
    return Gpu(
        index=found["index"].integer() if "index" in found else at,
        kind=found["kind"].text(),
        uuid="",
        pci=text(found, "pci"),
        numa=integer(found, "numa", -1),
        nvlinks=integer(found, "nvlinks", known.nvlinks if known else 0),
        memory_gib=found["memory_gib"].number() if "memory_gib" in found else (known.memory_gib if known else 0.0),
    )


def _nic(at: int, value: Value) -> Nic:
    found = value.fields(("name", "rail"), ("index", "gbps", "numa", "pci"))
    return Nic(
        index=found["index"].integer() if "index" in found else at,
        name=found["name"].text(),
        rail=found["rail"].integer(-1),
        gbps=integer(found, "gbps", 0),
        numa=integer(found, "numa", -1),
        pci=text(found, "pci"),
        leaf="",
    )


def _cpu(value: Value) -> Cpu:
    found = value.fields(("numa", "cpus"), ("arch", "vendor", "family", "model"))
    return Cpu(
        numa=found["numa"].integer(-1),
        cpus=found["cpus"].text(),
        arch=text(found, "arch"),
        vendor=text(found, "vendor"),
        family=integer(found, "family", -1),
        model=integer(found, "model", -1),
    )


def _pci(value: Value) -> PciDevice:
    more = ("parent", "numa", "vendor", "device", "subsystem_vendor", "subsystem_device", "speed", "width")
    found = value.fields(("bdf", "class"), more)
    return PciDevice(
        bdf=found["bdf"].text(),
        parent=text(found, "parent"),
        numa=integer(found, "numa", -1),
        pci_class=found["class"].text(),
        vendor=text(found, "vendor"),
        device=text(found, "device"),
        subsystem_vendor=text(found, "subsystem_vendor"),
        subsystem_device=text(found, "subsystem_device"),
        link_speed=text(found, "speed"),
        link_width=integer(found, "width", 0),
    )


def text(found: dict[str, Value], key: str) -> str:
    """The text under a key, empty where the key is not there."""
    return found[key].text() if key in found else ""


def integer(found: dict[str, Value], key: str, default: int) -> int:
    """The whole number from -1 under a key, `default` where the key is not there."""
    return found[key].integer(-1) if key in found else default


def _texts(value: Value, count: int) -> list[str]:
    found = [part.text() for part in value.items()]
    if len(found) != count:
        value.fail(f"{len(found)} values for {value.path}, but the shape has {count}")
    return found


def _healths(value: Value, count: int) -> dict[int, Health]:
    found = {}
    for key, part in value.entries().items():
        if not key.isascii() or not key.isdecimal() or len(key) > 9 or int(key) >= count:
            part.fail(f"{key[:60]!r} is not one of the {count} positions of {value.path}")
        found[int(key)] = Health(part.choice(Health))
    return found
