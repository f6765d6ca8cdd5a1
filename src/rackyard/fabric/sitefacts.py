"""A site said again as facts, so that a site file can be audited by the rules that audit captures."""

from rackyard.fabric.facts import CableFact, End, Facts, GpuFact, HostFact, NicFact, Source, SwitchFact
from rackyard.fabric.model import Gpu, Health, Leaf, Node, Site

READER = "site"


def facts_of(site: Site) -> Facts:
    """What the site says, as facts. What it does not say stays unsaid."""
    facts = Facts()
    source = Source(READER, site.provenance.file or site.name)
    for node in site.nodes:
        facts.hosts.append(_host(node, source))
        facts.gpus += [_gpu(node, gpu, source) for gpu in node.gpus]
        for nic in node.nics:
            facts.nics.append(
                NicFact(
                    node=node.name,
                    source=source,
                    name=nic.name,
                    pci=nic.pci or None,
                    numa=None if nic.numa < 0 else nic.numa,
                    guid=nic.guid or None,
                    gbps=nic.gbps or None,
                    state=_STATES[nic.health],
                )
            )
            if nic.leaf:
                end = End("hca", node.name, nic.name, 1, nic.guid)
                far = End("switch", nic.leaf, nic.leaf_port or f"{node.name} {nic.name}", 0)
                facts.cables.append(CableFact(a=far, b=end, source=source, gbps=nic.gbps or None))
    for leaf in site.leaves:
        facts.switches.append(SwitchFact(name=leaf.name, source=source, guid=leaf.guid or None, tier=0))
        facts.cables += _uplinks(leaf, source)
    return facts


_STATES = {Health.HEALTHY: "ACTIVE", Health.DEGRADED: "DEGRADED", Health.DOWN: "DOWN", Health.UNKNOWN: None}


def _host(node: Node, source: Source) -> HostFact:
    shared = not node.domain.is_own
    return HostFact(
        node=node.name,
        source=source,
        rack=node.rack,
        chassis=node.chassis or None,
        slot=None if node.slot < 0 else node.slot,
        tray=None if node.tray < 0 else node.tray,
        cluster_uuid=node.domain.cluster_uuid if shared else None,
        clique_id=node.domain.clique_id if shared else None,
        cordoned=node.cordoned or None,
        health=node.health,
    )


def _gpu(node: Node, gpu: Gpu, source: Source) -> GpuFact:
    return GpuFact(
        node=node.name,
        source=source,
        index=gpu.index,
        pci=gpu.pci or None,
        uuid=gpu.uuid or None,
        product=f"NVIDIA {gpu.kind}" if gpu.kind not in ("", "unknown") else None,
        memory_mib=round(gpu.memory_gib * 1024) or None,
        numa=None if gpu.numa < 0 else gpu.numa,
        links=None if gpu.nvlinks < 0 else gpu.nvlinks,
        health_summary={Health.HEALTHY: "Healthy", Health.UNKNOWN: None}.get(gpu.health, "Unhealthy"),
    )


def _uplinks(leaf: Leaf, source: Source) -> list[CableFact]:
    """As many cables as the leaf has uplinks, spread evenly over the spines that it names."""
    return [
        CableFact(
            a=End("switch", leaf.name, f"uplink {number + 1}", 0),
            b=End("switch", leaf.spines[number % len(leaf.spines)], f"{leaf.name} {number + 1}", 0),
            source=source,
        )
        for number in range(leaf.uplinks if leaf.spines else 0)
    ]
