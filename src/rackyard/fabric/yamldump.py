"""A site to YAML: whatever has its usual value is left out."""

from collections.abc import Iterable
from dataclasses import replace

from rackyard.errors import UsageError
from rackyard.fabric import kinds
from rackyard.fabric.model import Health, Node, Rack, Site
from rackyard.fabric.simulate import leaf_name, leaves_of, node_domain, simulate
from rackyard.fabric.yamlread import flow, flow_list, scalar
from rackyard.fabric.yamlshape import Shape, builtin, default_domain, default_switch_trays, default_uuid


def dump(site: Site, *, full: bool = False) -> str:
    """YAML from which `yamlio.load` makes an equal site. An untouched simulated site takes one line unless `full`."""
    if site.simulated and not full:
        short = _short(site)
        if short is not None:
            return short
    shapes = builtin()
    own: dict[str, Shape] = {}
    names = [_shape_name(node, shapes, own) for node in site.nodes]
    racks = {rack.name: rack for rack in site.racks}
    lines = [f"name: {scalar(site.name)}", f"simulated: {scalar(site.simulated)}", f"provenance: {_provenance(site)}"]
    lines += _block("shapes", ((name, _shape(shape)) for name, shape in own.items()))
    lines += _block("racks", ((rack.name, _rack(rack, site.simulated)) for rack in site.racks))
    lines += _block(
        "nodes",
        (
            (node.name, _node(node, name, racks[node.rack], site.simulated))
            for node, name in zip(site.nodes, names, strict=True)
        ),
    )
    if site.leaves != leaves_of(list(site.nodes), kinds.LEAF_UPLINKS if site.simulated else 0):
        leaves = (
            (leaf.name, flow({"rail": str(leaf.rail), "rack": scalar(leaf.rack), "uplinks": str(leaf.uplinks)}))
            for leaf in site.leaves
        )
        lines += _block("leaves", leaves) if site.leaves else ["leaves: {}"]
    if site.spines:
        lines.append(f"spines: {flow_list(scalar(spine.name) for spine in site.spines)}")
    return "\n".join(lines) + "\n"


def _short(site: Site) -> str | None:
    racks = [rack for rack in site.racks if rack.switch_trays]
    trays = [node for node in site.nodes if node.kind == "nvl72-tray"]
    servers = [node for node in site.nodes if node.kind == "hgx"]
    counts = {"racks": len(racks), "trays": len(trays) // len(racks) if racks else 18, "hgx": len(servers)}
    words = {"name": site.name}
    words |= {"gpu": trays[0].gpus[0].kind} if trays and trays[0].gpus else {}
    words |= {"hgx_gpu": servers[0].gpus[0].kind} if servers and servers[0].gpus else {}
    try:
        same = simulate(**counts, **words) == site  # type: ignore[arg-type]  # two kinds of keyword
    except UsageError:
        return None
    if not same:
        return None
    entries = {key: str(value) for key, value in counts.items()} | {key: scalar(value) for key, value in words.items()}
    return f"simulate: {flow(entries)}\n"


def _block(title: str, entries: Iterable[tuple[str, str]]) -> list[str]:
    lines = [f"  {scalar(name)}: {text}" for name, text in entries]
    return [f"{title}:", *lines] if lines else []


def _provenance(site: Site) -> str:
    origin = site.provenance
    entries = {"reader": scalar(origin.reader)}
    entries |= {"file": scalar(origin.file)} if origin.file else {}
    entries |= {"line": str(origin.line)} if origin.line is not None else {}
    entries |= {"simulated": "true"} if origin.simulated else {}
    return flow(entries)


def _bare(node: Node) -> Shape:
    gpus = tuple(replace(gpu, uuid="", health=Health.HEALTHY) for gpu in node.gpus)
    nics = tuple(replace(nic, leaf="", health=Health.HEALTHY) for nic in node.nics)
    return Shape(node.kind, gpus, nics, node.cpus)


def _shape_name(node: Node, shapes: dict[str, Shape], own: dict[str, Shape]) -> str:
    """The name of the node's shape; a new one is added to both tables."""
    bare = _bare(node)
    for name, shape in shapes.items():
        if shape == bare:
            return name
    name = f"shape-{len(own) + 1}"
    own[name] = shapes[name] = bare
    return name


def _shape(shape: Shape) -> str:
    gpus = (
        flow(
            {"index": str(gpu.index), "kind": scalar(gpu.kind), "pci": scalar(gpu.pci), "numa": str(gpu.numa)}
            | {"nvlinks": str(gpu.nvlinks), "memory_gib": scalar(gpu.memory_gib)}
        )
        for gpu in shape.gpus
    )
    nics = (
        flow(
            {"index": str(nic.index), "name": scalar(nic.name), "rail": str(nic.rail), "gbps": str(nic.gbps)}
            | {"numa": str(nic.numa), "pci": scalar(nic.pci)}
        )
        for nic in shape.nics
    )
    cpus = (flow({"numa": str(cpu.numa), "cpus": scalar(cpu.cpus)}) for cpu in shape.cpus)
    parts = {"kind": shape.kind, "cpus": flow_list(cpus), "gpus": flow_list(gpus), "nics": flow_list(nics)}
    return "\n" + "\n".join(f"    {key}: {text}" for key, text in parts.items())


def _rack(rack: Rack, simulated: bool) -> str:
    entries = {"switch_trays": _switch_trays(rack)} if rack.switch_trays else {}
    if rack.domain != default_domain(rack.name, bool(rack.switch_trays), simulated):
        entries["domain"] = "none" if rack.domain is None else scalar(str(rack.domain))
    if rack.nvlink is not Health.HEALTHY:
        entries["nvlink"] = rack.nvlink.value
    return flow(entries)


def _switch_trays(rack: Rack) -> str:
    count = len(rack.switch_trays)
    if rack.switch_trays == default_switch_trays(rack.name, count):
        return str(count)
    return flow_list(
        flow(
            {"name": scalar(tray.name), "slot": str(tray.slot), "asics": str(tray.asics)}
            | ({"rack": scalar(tray.rack)} if tray.rack != rack.name else {})
            | ({"health": tray.health.value} if tray.health is not Health.HEALTHY else {})
        )
        for tray in rack.switch_trays
    )


def _node(node: Node, shape: str, rack: Rack, simulated: bool) -> str:
    entries = {"shape": scalar(shape), "rack": scalar(node.rack), "slot": str(node.slot)}
    if node.domain != (node_domain(node.name) if rack.domain is None else rack.domain):
        entries["domain"] = scalar(str(node.domain))
    if any(gpu.uuid != default_uuid(node.name, at, simulated) for at, gpu in enumerate(node.gpus)):
        entries["uuids"] = flow_list(scalar(gpu.uuid) for gpu in node.gpus)
    if any(nic.leaf != leaf_name(nic.rail, node.rack) for nic in node.nics):
        entries["leaves"] = flow_list(scalar(nic.leaf) for nic in node.nics)
    for key, healths in (
        ("gpu_health", [gpu.health for gpu in node.gpus]),
        ("nic_health", [nic.health for nic in node.nics]),
    ):
        odd = {str(at): health.value for at, health in enumerate(healths) if health is not Health.HEALTHY}
        if odd:
            entries[key] = flow(odd)
    if node.health is not Health.HEALTHY:
        entries["health"] = node.health.value
    if node.cordoned:
        entries["cordoned"] = scalar(node.cordoned)
    return flow(entries)
