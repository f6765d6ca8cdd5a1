"""A made-up site of real shape, for machines without a GPU. Everything in it says that it is simulated."""

import difflib
import hashlib
from collections.abc import Sequence
from dataclasses import replace

from rackyard.errors import UsageError
from rackyard.fabric import kinds
from rackyard.fabric.bulk import uncollected
from rackyard.fabric.model import (
    DomainKey,
    Gpu,
    Leaf,
    Nic,
    Node,
    Provenance,
    Rack,
    Site,
    Spine,
    SwitchTray,
)


def simulate(
    racks: int = 2,
    trays: int = kinds.TRAYS_PER_RACK,
    hgx: int = 0,
    gpu: str = "GB300",
    name: str = "simulated",
    hgx_gpu: str = "H200",
    racks_per_block: int = 0,
) -> Site:
    """`racks` NVL72 racks of `trays` compute trays each, and `hgx` servers of eight GPUs in racks of their own.

    Without racks, `gpu` may name the servers' GPU. With `racks_per_block`, so many racks in a row, the servers' racks
    last, have their own spines, and core switches join the blocks; with 0 all leaves go to the same spines. UsageError
    for counts out of range and GPU kinds that are not in `kinds.SHAPES`.
    """
    if racks == 0 and gpu in kinds.SHAPES and kinds.SHAPES[gpu].kind == "hgx":
        gpu, hgx_gpu = "GB300", gpu
    tray, server = _shape(gpu, "nvl72-tray"), _shape(hgx_gpu, "hgx")
    _check("racks", racks, 0, 10_000)
    _check("trays", trays, 1, kinds.TRAYS_PER_RACK)
    _check("hgx", hgx, 0, 10_000)
    _check("racks_per_block", racks_per_block, 0, 10_000)
    if racks + hgx == 0:
        raise UsageError("the simulated site is empty", fix="give it at least one rack or one HGX server")
    with uncollected():
        nvl72, compute_trays = _nvl72_racks(racks, trays, tray)
        rest, servers = _hgx_racks(hgx, server)
        rack_list, nodes = nvl72 + rest, compute_trays + servers
        leaves, spines = _network(rack_list, nodes, racks_per_block)
        return Site(
            name=name,
            simulated=True,
            racks=tuple(rack_list),
            nodes=tuple(nodes),
            leaves=leaves,
            spines=spines,
            provenance=Provenance("simulate", simulated=True),
        )


def _nvl72_racks(racks: int, trays: int, shape: kinds.NodeShape) -> tuple[list[Rack], list[Node]]:
    rack_list: list[Rack] = []
    nodes: list[Node] = []
    for number in range(1, racks + 1):
        rack = _nvl72_rack(f"r{number:02d}")
        rack_list.append(rack)
        domain, nics = rack_domain(rack.name), nics_of(shape, rack.name)
        for slot in range(1, trays + 1):
            nodes.append(_node(f"{rack.name}-t{slot:02d}", rack.name, slot, domain, shape, nics))
    return rack_list, nodes


def _hgx_racks(servers: int, shape: kinds.NodeShape) -> tuple[list[Rack], list[Node]]:
    rack_list: list[Rack] = []
    nodes: list[Node] = []
    for number in range(servers):
        rack_name = f"h{number // kinds.HGX_PER_RACK + 1:02d}"
        slot = number % kinds.HGX_PER_RACK + 1
        if slot == 1:
            rack_list.append(Rack(rack_name))
        name = f"hgx-{number + 1:02d}"
        nodes.append(_node(name, rack_name, slot, node_domain(name), shape, nics_of(shape, rack_name)))
    return rack_list, nodes


def _network(
    racks: Sequence[Rack], nodes: Sequence[Node], racks_per_block: int
) -> tuple[tuple[Leaf, ...], tuple[Spine, ...]]:
    """The leaves, and the spines with the core switches after them."""
    numbers = range(1, kinds.SPINES + 1)
    if not racks_per_block:
        spines = tuple(f"spine-{number}" for number in numbers)
        return leaves_of(nodes, kinds.LEAF_UPLINKS, spines), tuple(Spine(spine) for spine in spines)
    count = -(-len(racks) // racks_per_block)
    blocks = [tuple(f"spine-{block}-{number}" for number in numbers) for block in range(1, count + 1)]
    of_rack = {rack.name: blocks[at // racks_per_block] for at, rack in enumerate(racks)}
    leaves = tuple(replace(leaf, spines=of_rack[leaf.rack]) for leaf in leaves_of(nodes, kinds.LEAF_UPLINKS))
    cores = tuple(f"core-{number}" for number in range(1, kinds.CORES + 1)) if count > 1 else ()
    made = [Spine(spine, above=cores) for block in blocks for spine in block]
    return leaves, (*made, *(Spine(core) for core in cores))


def rack_domain(rack: str) -> DomainKey:
    """The made-up domain key of an NVL72 rack: a UUID that follows from its name, and clique 1 as on real racks."""
    return DomainKey(_uuid(f"domain {rack}"), 1)


def node_domain(node: str) -> DomainKey:
    """The key of a server that is its own NVLink domain."""
    return DomainKey(f"node:{node}", 0)


def gpu_uuid(node: str, index: int) -> str:
    """The made-up UUID of a GPU, in the driver's form."""
    return "GPU-" + _uuid(f"gpu {node} {index}")


def leaf_name(rail: int, rack: str) -> str:
    """One leaf per (rack, rail), named as on the public DGX fabric: `leaf-<rail>-<rack>`."""
    return f"leaf-{rail}-{rack}"


def leaves_of(nodes: Sequence[Node], uplinks: int, spines: tuple[str, ...] = ()) -> tuple[Leaf, ...]:
    """The leaves that the nodes' NICs end on, in the order of the first NIC on each, all linked to the same spines."""
    found: dict[str, Leaf] = {}
    for node in nodes:
        for nic in node.nics:
            if nic.leaf and nic.leaf not in found:
                found[nic.leaf] = Leaf(nic.leaf, nic.rail, node.rack, uplinks, spines)
    return tuple(found.values())


def gpus_of(shape: kinds.NodeShape, uuids: tuple[str, ...]) -> tuple[Gpu, ...]:
    """The GPUs of a node of that shape, healthy."""
    return tuple(
        Gpu(index, shape.gpu, uuids[index], pci, shape.gpu_numa[index], shape.nvlinks, shape.memory_gib)
        for index, pci in enumerate(shape.gpu_pci)
    )


def nics_of(shape: kinds.NodeShape, rack: str) -> tuple[Nic, ...]:
    """The NICs of a node of that shape in that rack: NIC i serves GPU i and is on rail i."""
    return tuple(
        Nic(index, hca, index, shape.nic_gbps, shape.gpu_numa[index], shape.nic_pci[index], leaf_name(index, rack))
        for index, hca in enumerate(shape.nic_names)
    )


def _node(name: str, rack: str, slot: int, domain: DomainKey, shape: kinds.NodeShape, nics: tuple[Nic, ...]) -> Node:
    gpus = gpus_of(shape, tuple(gpu_uuid(name, index) for index in range(len(shape.gpu_pci))))
    return Node(name, shape.kind, rack, slot, domain, gpus, nics, shape.cpus, pci=shape.pci)


def _nvl72_rack(name: str) -> Rack:
    numbers = range(1, kinds.SWITCH_TRAYS_PER_RACK + 1)
    trays = tuple(SwitchTray(f"{name}-s{number}", name, number, kinds.ASICS_PER_SWITCH_TRAY) for number in numbers)
    return Rack(name, rack_domain(name), trays)


def _shape(gpu: str, kind: str) -> kinds.NodeShape:
    known = [name for name, shape in kinds.SHAPES.items() if shape.kind == kind]
    if gpu in known:
        return kinds.SHAPES[gpu]
    close = difflib.get_close_matches(gpu.upper(), known, 1)
    fix = f"did you mean {close[0]}?" if close else f"one of {', '.join(known)}"
    raise UsageError(f"no {kind} carries the GPU {gpu!r}", fix=fix)


def _check(what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise UsageError(f"{what}: {value} is out of range", fix=f"a number from {low} to {high}")


def _uuid(seed: str) -> str:
    digest = hashlib.sha256(seed.encode()).hexdigest()
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))
