"""A site to YAML: whatever has its usual value is left out."""

from collections.abc import Iterable

from rackyard.errors import UsageError
from rackyard.fabric.model import Cpu, Gpu, Health, Leaf, Nic, Node, PciDevice, Rack, Site, Spine
from rackyard.fabric.simulate import leaf_name, node_domain, simulate
from rackyard.fabric.yamlcables import dump_cables
from rackyard.fabric.yamlread import flow, flow_list, scalar
from rackyard.fabric.yamlshape import (
    Shape,
    builtin,
    default_domain,
    default_leaves,
    default_switch_trays,
    default_uuid,
)


def dump(site: Site, *, full: bool = False) -> str:
    """YAML from which `yamlio.load` makes an equal site. An untouched simulated site takes one line unless `full`."""
    if site.simulated and not full:
        short = _short(site)
        if short is not None:
            return short
    known = {shape: name for name, shape in builtin().items()}
    own: dict[str, Shape] = {}
    names = [_shape_name(node, known, own) for node in site.nodes]
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
    if site.leaves != default_leaves(site.nodes, site.spines, site.simulated):
        leaves = ((leaf.name, _leaf(leaf)) for leaf in site.leaves)
        lines += _block("leaves", leaves) if site.leaves else ["leaves: {}"]
    lines += _spines(site.spines)
    return "\n".join(lines) + "\n"


def _short(site: Site) -> str | None:
    racks = [rack for rack in site.racks if rack.switch_trays]
    trays = [node for node in site.nodes if node.kind == "nvl72-tray"]
    servers = [node for node in site.nodes if node.kind == "hgx"]
    counts = {"racks": len(racks), "trays": len(trays) // len(racks) if racks else 18, "hgx": len(servers)}
    counts |= {"racks_per_block": block} if (block := _racks_per_block(site)) else {}
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


def _racks_per_block(site: Site) -> int:
    """How many racks the first leaf's spines serve, where the spines are named after blocks; else 0."""
    if not site.leaves or not site.spines or site.spines[0].name != "spine-1-1":
        return 0
    return len({leaf.rack for leaf in site.leaves if leaf.spines == site.leaves[0].spines})


def _block(title: str, entries: Iterable[tuple[str, str]]) -> list[str]:
    lines = [f"  {scalar(name)}:{text if text.startswith(chr(10)) else ' ' + text}" for name, text in entries]
    return [f"{title}:", *lines] if lines else []


def _provenance(site: Site) -> str:
    origin = site.provenance
    entries = {"reader": scalar(origin.reader)}
    entries |= {"file": scalar(origin.file)} if origin.file else {}
    entries |= {"line": str(origin.line)} if origin.line is not None else {}
    entries |= {"simulated": "true"} if origin.simulated else {}
    return flow(entries)


def _bare(node: Node) -> Shape:
    gpus = tuple(Gpu(gpu.index, gpu.kind, "", gpu.pci, gpu.numa, gpu.nvlinks, gpu.memory_gib) for gpu in node.gpus)
    nics = tuple(Nic(nic.index, nic.name, nic.rail, nic.gbps, nic.numa, nic.pci, "") for nic in node.nics)
    return Shape(node.kind, gpus, nics, node.cpus, node.pci)


def _shape_name(node: Node, known: dict[Shape, str], own: dict[str, Shape]) -> str:
    """The name of the node's shape; a new one is added to both tables."""
    bare = _bare(node)
    name = known.get(bare)
    if name is None:
        name = f"shape-{len(own) + 1}"
        own[name] = bare
        known[bare] = name
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
    cpus = flow_list(_cpu(cpu) for cpu in shape.cpus)
    parts = {"kind": shape.kind, "cpus": cpus, "gpus": flow_list(gpus), "nics": flow_list(nics)}
    lines = [f"    {key}: {text}" for key, text in parts.items()]
    if shape.pci:
        lines += ["    pci:", *(f"    - {_pci(device)}" for device in shape.pci)]
    return "\n" + "\n".join(lines)


def _cpu(cpu: Cpu) -> str:
    entries = {"numa": str(cpu.numa), "cpus": scalar(cpu.cpus)}
    entries |= {key: scalar(text) for key, text in (("arch", cpu.arch), ("vendor", cpu.vendor)) if text}
    entries |= {key: str(number) for key, number in (("family", cpu.family), ("model", cpu.model)) if number != -1}
    return flow(entries)


def _pci(device: PciDevice) -> str:
    entries = {"bdf": scalar(device.bdf), "class": scalar(device.pci_class)}
    entries |= {"parent": scalar(device.parent)} if device.parent else {}
    entries |= {"numa": str(device.numa)} if device.numa != -1 else {}
    for key in ("vendor", "device", "subsystem_vendor", "subsystem_device"):
        entries |= {key: scalar(getattr(device, key))} if getattr(device, key) else {}
    entries |= {"speed": scalar(device.link_speed)} if device.link_speed else {}
    entries |= {"width": str(device.link_width)} if device.link_width else {}
    return flow(entries)


def _rack(rack: Rack, simulated: bool) -> str:
    entries = {"switch_trays": _switch_trays(rack)} if rack.switch_trays else {}
    if rack.domain != default_domain(rack.name, bool(rack.switch_trays), simulated):
        entries["domain"] = "none" if rack.domain is None else scalar(str(rack.domain))
    if rack.nvlink is not Health.HEALTHY:
        entries["nvlink"] = rack.nvlink.value
    if not rack.nvlinks:
        return flow(entries)
    lines = [f"    {key}: {text}" for key, text in entries.items()]
    lines += ["    nvlinks:", *(f"    - {line}" for line in dump_cables(rack.nvlinks))]
    return "\n" + "\n".join(lines)


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
    for key, texts in (
        ("guids", [nic.guid for nic in node.nics]),
        ("leaf_ports", [nic.leaf_port for nic in node.nics]),
    ):
        if any(texts):
            entries[key] = flow_list(scalar(text) for text in texts)
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
    if node.tray != -1:
        entries["tray"] = str(node.tray)
    if node.chassis:
        entries["chassis"] = scalar(node.chassis)
    return flow(entries)


def _leaf(leaf: Leaf) -> str:
    entries = {"rail": str(leaf.rail), "rack": scalar(leaf.rack), "uplinks": str(leaf.uplinks)}
    entries |= {"spines": flow_list(scalar(spine) for spine in leaf.spines)} if leaf.spines else {}
    entries |= {"guid": scalar(leaf.guid)} if leaf.guid else {}
    return flow(entries)


def _spines(spines: tuple[Spine, ...]) -> list[str]:
    if not any(spine.guid or spine.above for spine in spines):
        return [f"spines: {flow_list(scalar(spine.name) for spine in spines)}"] if spines else []
    lines = ["spines:"]
    for spine in spines:
        entries = {"name": scalar(spine.name)}
        entries |= {"guid": scalar(spine.guid)} if spine.guid else {}
        entries |= {"above": flow_list(scalar(name) for name in spine.above)} if spine.above else {}
        lines.append(f"- {flow(entries)}")
    return lines
