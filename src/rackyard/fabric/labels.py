"""A node's labels from what the site says of it. What nobody said gives no label: never a guess, never an empty value.

keys = shipped().written()
labels_of(site, keys)["r01-t01"]["rackyard.io/rails-up"]   # "0xf"
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rackyard.fabric import kinds
from rackyard.fabric.labelkeys import Fact, LabelKey
from rackyard.fabric.model import UNPLACED, Gpu, Health, Node, Site, is_zero

Said = dict[tuple[Fact, int | None], str]
"""What is known of one node: by fact, and by rail or tier where there is one for each."""

_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
"""Kubernetes, "Labels and selectors": up to 63 characters, letters or digits at both ends; may be empty."""

_FNV_OFFSET, _FNV_PRIME, _64 = 0xCBF29CE484222325, 0x100000001B3, 2**64 - 1  # FNV-1a in 64 bits, Go's hash/fnv New64a

_BAD = (Health.DOWN, Health.DEGRADED)
_TIERS = 8
"""More tiers than any network of switches has; where switches name each other as above, counting must still end."""


def label_value(text: str) -> str:
    """`text` where Kubernetes takes it as a label value, else `x` and the FNV-1a hash of its UTF-8 bytes in 64 bits,
    in hexadecimal without leading zeros.

    Topograph (pkg/engines/k8s/labeler.go) does so for values over 63 bytes, and leaves characters that Kubernetes does
    not allow to be refused. Those are hashed here as well: replacing them could give two switches one name.
    """
    return text if _VALUE.fullmatch(text) else f"x{_fnv1a(text.encode('utf-8', 'surrogatepass')):x}"


def labels_of(site: Site, keys: Collection[LabelKey]) -> dict[str, dict[str, str]]:
    """The labels of every node of the site under those keys (`KeyTable.written`), in site order."""
    whole = [(key.stem, (key.fact, key.number)) for key in keys if not key.family]
    families: dict[Fact, list[str]] = defaultdict(list)
    for key in keys:
        if key.family:
            families[key.fact].append(key.stem)
    network = _Network.of(site)
    values: dict[str, str] = {}  # many nodes share a value
    labels: dict[str, dict[str, str]] = {}
    for node in site.nodes:
        said = _said(node, network)
        found = {stem: said[fact] for stem, fact in whole if fact in said}
        for (fact, number), text in said.items():
            if number is not None:
                found |= {f"{stem}{number}": text for stem in families.get(fact, ())}
        for key_text, text in found.items():
            if text not in values:
                values[text] = label_value(text)
            found[key_text] = values[text]
        labels[node.name] = found
    return labels


def _said(node: Node, network: "_Network") -> Said:
    said: Said = {}
    if domain := _domain(node):
        said[Fact.DOMAIN, None] = domain
    if ":" not in node.domain.cluster_uuid and domain:
        said[Fact.FABRIC_CLIQUE, None] = domain
        said[Fact.CLIQUE_ID, None] = str(node.domain.clique_id)
    if node.rack not in ("", UNPLACED):
        said[Fact.RACK, None] = node.rack
    if node.chassis:
        said[Fact.CHASSIS, None] = node.chassis
    for fact, number in ((Fact.SLOT, node.slot), (Fact.TRAY, node.tray)):
        if number >= 0:
            said[fact, None] = str(number)
    _say_rails(node, said)
    lost = [network.lost_links(node, gpu) for gpu in node.gpus]
    _say_count(
        said, Fact.DEGRADED_GPUS, [_gpu_bad(gpu, links) for gpu, links in zip(node.gpus, lost, strict=True)], node
    )
    nics = [None if nic.health is Health.UNKNOWN else int(nic.health in _BAD) for nic in node.nics]
    _say_count(said, Fact.DEGRADED_LINKS, lost + (nics or [None]), node)
    for tier, name in enumerate(network.tiers.get(node.name, ())):
        said[Fact.TIER, tier] = name
    return said


def _domain(node: Node) -> str:
    """The domain's key without the colon of a made-up one (`node:hgx-1.0`), which labels can't carry. Nothing for a
    UUID of zeros, which many nodes report without sharing anything, and for a node whose domain is only itself though
    it is not known to be a server: nobody has asked its fabric.
    """
    if is_zero(node.domain.cluster_uuid) or (node.domain.is_own and node.kind != "hgx"):
        return ""
    return str(node.domain).replace(":", ".", 1)


def _say_rails(node: Node, said: Said) -> None:
    """The leaf of each rail, and the mask of rails that are up. A rail with several NICs is up when all are; its leaf
    is told when they agree.
    """
    leaves: dict[int, set[str]] = defaultdict(set)
    up: dict[int, bool] = {}
    for nic in node.nics:
        if nic.rail >= 0:
            leaves[nic.rail].add(nic.leaf)
            up[nic.rail] = up.get(nic.rail, True) and nic.health is not Health.DOWN
    for rail, names in sorted(leaves.items()):
        if len(names) == 1 and (name := next(iter(names))):
            said[Fact.LEAF_OF_RAIL, rail] = name
    unknown = any(nic.rail < 0 or nic.health is Health.UNKNOWN for nic in node.nics)
    if up and not unknown and max(up) < 64:
        said[Fact.RAILS_UP, None] = f"{sum(1 << rail for rail, is_up in up.items() if is_up):#x}"


def _say_count(said: Said, fact: Fact, parts: list[int | None], node: Node) -> None:
    """Add up what is known to be bad. Nothing bad and something unknown is no zero, and is not told."""
    count = sum(part for part in parts if part is not None)
    if count or (node.gpus and None not in parts and not _gpus_unseen(node)):
        said[fact, None] = str(count)


def _gpus_unseen(node: Node) -> bool:
    """Whether a tray has GPUs that nobody spoke of: off the bus, or not in the capture."""
    shape = kinds.SHAPES.get(node.gpus[0].kind)
    return shape is not None and shape.kind == node.kind == "nvl72-tray" and len(node.gpus) < len(shape.gpu_pci)


def _gpu_bad(gpu: Gpu, lost: int | None) -> int | None:
    if gpu.health in _BAD or lost:
        return 1
    return None if gpu.health is Health.UNKNOWN or lost is None else 0


@dataclass(frozen=True, slots=True)
class _Network:
    """What takes a look at the whole site: links a GPU should have, cables that are down, and switch groups by node."""

    links: Mapping[str, int]
    cables: Mapping[tuple[str, int], int]
    tiers: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, site: Site) -> "_Network":
        links: dict[str, int] = {}
        for node in site.nodes:
            for gpu in node.gpus:
                if gpu.kind not in ("", "unknown"):
                    links[gpu.kind] = max(links.get(gpu.kind, 0), gpu.nvlinks)
        links |= {kind: shape.nvlinks for kind, shape in kinds.SHAPES.items()}
        cables: Counter[tuple[str, int]] = Counter()
        silent = any(gpu.nvlinks < 0 for node in site.nodes for gpu in node.gpus)
        for rack in site.racks:
            for cable in rack.nvlinks:
                if silent or not cable.up:  # a cable that is up says something only where the host said nothing
                    cables[cable.node, cable.gpu] += not cable.up
        return cls(links, cables, _tiers(site))

    def lost_links(self, node: Node, gpu: Gpu) -> int | None:
        """NVLinks that the GPU should have and that are not up; None when neither it nor the switches said."""
        wanted = self.links.get(gpu.kind, 0)
        own = max(0, wanted - gpu.nvlinks) if wanted and gpu.nvlinks >= 0 else None
        seen = self.cables.get((node.name, gpu.index))
        return max((count for count in (own, seen) if count is not None), default=None)


def _tiers(site: Site) -> dict[str, tuple[str, ...]]:
    """The switch groups above each node, leaf first."""
    below = {
        node.name: tuple(dict.fromkeys(nic.leaf for nic in sorted(node.nics, key=lambda nic: nic.rail) if nic.leaf))
        for node in site.nodes
    }
    above: dict[str, Collection[str]] = {leaf.name: leaf.spines for leaf in site.leaves}
    above |= {spine.name: spine.above for spine in site.spines}
    order = {name: at for at, name in enumerate(above)}
    tiers: dict[str, tuple[str, ...]] = dict.fromkeys(below, ())
    place = {node: node for node in below}
    for _ in range(_TIERS):
        group, of_switch = _groups(below)
        if not group:
            break
        place = {node: group[at] for node, at in place.items() if at in group}
        for node, name in place.items():
            tiers[node] += (name,)
        reached: dict[str, set[str]] = defaultdict(set)
        for switch, name in of_switch.items():
            reached[name].update(above.get(switch, ()))
        below = {
            name: tuple(sorted(ups, key=lambda up: (order.get(up, len(order)), up))) for name, ups in reached.items()
        }
    return tiers


def _groups(below: Mapping[str, tuple[str, ...]]) -> tuple[dict[str, str], dict[str, str]]:
    """The group of each part that is below switches, and of each of those switches, by the name of one switch in it.

    The switches of a group serve the same parts, as the leaves of one rack do, one for each rail. Each switch is named
    after the first switch of most parts on it, and each part goes with most of its switches: a cable that is missing or
    on the wrong switch is outvoted, and so moves nobody else's label.
    """
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for switches in below.values():
        for switch in switches:
            votes[switch][switches[0]] += 1
    named = {switch: min(count, key=lambda name: (-count[name], name)) for switch, count in votes.items()}
    groups: dict[str, str] = {}
    for part, switches in below.items():
        if switches:
            count = Counter(named[switch] for switch in switches)
            groups[part] = count.most_common(1)[0][0]  # of equals, the one met first: the lowest rail's
    return groups, named


def _fnv1a(data: bytes) -> int:
    hashed = _FNV_OFFSET
    for byte in data:
        hashed = ((hashed ^ byte) * _FNV_PRIME) & _64
    return hashed
