"""The nodes of a site in nested groups, nearest first: NVLink domain, leaf group, spine group, …, site.

Placement chooses among these, and every export that knows tiers (HyperNodes, Slurm's tree, topograph's models) is a
walk over them. A rail-optimised node ends on one leaf a rail; the leaves that serve the same nodes are one *leaf
group*. A crossed cable must not join two of them, so whole patterns found the groups and odd ones join the group that
they share most leaves with.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rackyard.fabric.model import DomainKey, Node, Site

DOMAIN = "nvlink-domain"
LEAF = "leaf-group"
BLOCK = "spine-group"
PART = "core-group"
SITE = "site"
_ABOVE = (BLOCK, PART)
_DEEPEST = 16
"""More tiers than any network of switches has."""


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that one tier holds together. `children` are the groups of lower tiers in it, `loose` the nodes that are
    in none of these. `tier` counts from 1; `switches` are what it is made of, as far as anybody said.
    """

    name: str
    tier: int
    tier_name: str
    children: tuple["Group", ...]
    loose: tuple[str, ...]
    switches: tuple[str, ...] = ()

    def nodes(self) -> tuple[str, ...]:
        """The names of all nodes in it: those of its children, then the loose ones."""
        return tuple(name for child in self.children for name in child.nodes()) + self.loose


def tiers(site: Site) -> tuple[tuple[Group, ...], ...]:
    """The groups of each tier, lowest first. Tiers whose every group is just one group of the tier below are left
    out. Groups stand in the order of their first nodes. Empty for a site without nodes.
    """
    return _numbered(_found(site), short=True)


def largest(site: Site) -> Group | None:
    """The group that holds all others, with every tier in it; None for a site without nodes."""
    found = _numbered(_found(site), short=False)
    return found[-1][0] if found else None


def shared_domain(node: Node) -> bool:
    """Whether the node is one of several, or may be, in its NVLink domain; an HGX server is a domain by itself."""
    return not node.domain.is_own


def _found(site: Site) -> list[tuple[str, list[Group]]]:
    if not site.nodes:
        return []
    domains = _domains(site)
    homes = _homes(site.nodes, domains)
    leaves = _leaf_groups(site, domains, homes)
    found = [(DOMAIN, [group for group, _ in domains.values()]), (LEAF, leaves)]
    up = {leaf.name: leaf.spines for leaf in site.leaves} | {spine.name: spine.above for spine in site.spines}
    levels = _levels(up, [switch for group in leaves for switch in group.switches])
    groups = leaves
    for level in range(1, max(levels.values(), default=0) + 1):
        if len(groups) == 1:
            break
        groups, made = _joined(groups, up, levels, level, site.name)
        found.append((_tier_name(level), made))
    if len(groups) > 1:
        found.append((SITE, [Group(site.name, 0, SITE, tuple(groups), ())]))
    return found


def _domains(site: Site) -> dict[DomainKey, tuple[Group, tuple[Node, ...]]]:
    members: dict[DomainKey, list[Node]] = defaultdict(list)
    in_rack: dict[str, set[DomainKey]] = defaultdict(set)
    for node in site.nodes:
        if shared_domain(node):
            members[node.domain].append(node)
            in_rack[node.rack].add(node.domain)
    found = {}
    for key, nodes in members.items():
        racks = tuple(dict.fromkeys(node.rack for node in nodes))
        alone = all(len(in_rack[rack]) == 1 for rack in racks)
        name = _of_racks(racks) if alone else f"{_of_racks(racks)}-{key.cluster_uuid[:8]}.{key.clique_id}"
        found[key] = (Group(name, 0, DOMAIN, (), tuple(node.name for node in nodes)), tuple(nodes))
    return found


def _of_racks(racks: Sequence[str]) -> str:
    return racks[0] if len(racks) == 1 else f"{racks[0]}-{racks[-1]}"


@dataclass(slots=True)
class _Home:
    leaves: frozenset[str]
    racks: Counter[str]
    rack: str = ""


def _homes(nodes: Sequence[Node], domains: Mapping[DomainKey, object]) -> dict[str, int]:
    """The number of each node's leaf group. A domain is never divided: all of it is where most of its nodes are."""
    ends = {node.name: frozenset(nic.leaf for nic in node.nics if nic.leaf) for node in nodes}
    homes: list[_Home] = []
    by_leaf: dict[str, list[int]] = defaultdict(list)
    placed: dict[frozenset[str], dict[str, int]] = defaultdict(dict)
    counted = Counter((ends[node.name], node.rack) for node in nodes if ends[node.name])
    for (leaves, rack), count in sorted(counted.items(), key=lambda item: -item[1]):
        candidates = Counter(number for leaf in leaves for number in by_leaf[leaf])
        best = max(
            candidates, key=lambda number: (candidates[number], homes[number].racks[rack], -number), default=None
        )
        if best is None or 2 * candidates[best] < min(len(leaves), len(homes[best].leaves)):
            best = len(homes)
            homes.append(_Home(leaves, Counter()))
            for leaf in leaves:
                by_leaf[leaf].append(best)
        homes[best].racks[rack] += count
        placed[leaves][rack] = best
    of_rack = {rack: number for number, home in reversed(list(enumerate(homes))) for rack in home.racks}
    found = {}
    for node in nodes:
        if ends[node.name]:
            found[node.name] = placed[ends[node.name]][node.rack]
        else:
            found[node.name] = of_rack.setdefault(node.rack, len(homes) + len(of_rack))
    return _undivided(nodes, found)


def _undivided(nodes: Sequence[Node], homes: dict[str, int]) -> dict[str, int]:
    votes: dict[DomainKey, Counter[int]] = defaultdict(Counter)
    for node in nodes:
        if shared_domain(node):
            votes[node.domain][homes[node.name]] += 1
    best = {key: counted.most_common(1)[0][0] for key, counted in votes.items()}
    return {node.name: best.get(node.domain, homes[node.name]) for node in nodes}


def _leaf_groups(
    site: Site, domains: Mapping[DomainKey, tuple[Group, tuple[Node, ...]]], homes: Mapping[str, int]
) -> list[Group]:
    members: dict[int, list[Node]] = defaultdict(list)
    for node in site.nodes:
        members[homes[node.name]].append(node)
    found = []
    for nodes in members.values():
        keys = dict.fromkeys(node.domain for node in nodes if shared_domain(node))
        loose = tuple(node.name for node in nodes if not shared_domain(node))
        patterns = Counter(tuple(dict.fromkeys(nic.leaf for nic in node.nics if nic.leaf)) for node in nodes)
        patterns.pop((), None)
        switches = patterns.most_common(1)[0][0] if patterns else ()
        racks = tuple(dict.fromkeys(node.rack for node in nodes))
        name = switches[0] if len(switches) == 1 else _of_racks(racks)
        found.append(Group(name, 0, LEAF, tuple(domains[key][0] for key in keys), loose, switches))
    return found


def _levels(up: Mapping[str, tuple[str, ...]], leaves: Iterable[str]) -> dict[str, int]:
    """How far above the leaves a switch is, by the longest way. Switches that name each other as above end the
    counting.
    """
    found = dict.fromkeys(leaves, 0)
    below = list(found)
    for level in range(1, _DEEPEST + 1):
        below = list(dict.fromkeys(name for switch in below for name in up.get(switch, ())))
        found |= dict.fromkeys(below, level)
    return found


def _tier_name(level: int) -> str:
    return _ABOVE[level - 1] if level <= len(_ABOVE) else f"switch-tier-{level}"


def _joined(
    groups: Sequence[Group], up: Mapping[str, tuple[str, ...]], levels: Mapping[str, int], level: int, site: str
) -> tuple[list[Group], list[Group]]:
    """The groups of one more tier, and those of them that are new: groups become one that share half of the switches
    above them at this level. A group with none there waits for a higher tier.
    """
    pods: list[tuple[frozenset[str], list[Group]]] = []
    exact: dict[frozenset[str], int] = {}
    of_switch: dict[str, list[int]] = defaultdict(list)
    rows: list[tuple[Group, int]] = []
    for group in groups:
        above = (name for switch in group.switches for name in up.get(switch, ()))
        wanted = frozenset(name for name in above if levels[name] == level)
        at = exact.get(wanted, -1)
        if at < 0 and wanted:
            # Only pods that share a switch can share half of them: asking all would take the square of the pods.
            near = sorted({pod for name in wanted for pod in of_switch[name]})
            at = next((pod for pod in near if _half(wanted, pods[pod][0])), len(pods))
            exact[wanted] = at
            if at == len(pods):
                pods.append((wanted, []))
                for name in wanted:
                    of_switch[name].append(at)
        if at >= 0:
            pods[at][1].append(group)
        rows.append((group, at))
    made = [_pod(level, wanted, members, up, site if len(members) == len(groups) else "") for wanted, members in pods]
    kept: list[Group] = []
    seen: set[int] = set()
    for group, at in rows:
        if at < 0:
            kept.append(group)
        elif at not in seen:
            seen.add(at)
            kept.append(made[at])
    return kept, made


def _half(one: frozenset[str], two: frozenset[str]) -> bool:
    return 2 * len(one & two) >= min(len(one), len(two))


def _pod(
    level: int, wanted: frozenset[str], members: Sequence[Group], up: Mapping[str, tuple[str, ...]], whole: str
) -> Group:
    above = (name for group in members for switch in group.switches for name in up.get(switch, ()))
    switches = tuple(dict.fromkeys(name for name in above if name in wanted))
    name = switches[0] if len(switches) == 1 else whole or f"{_tier_name(level)}-{members[0].name}"
    return Group(name, 0, _tier_name(level), tuple(members), (), switches)


def _numbered(found: Iterable[tuple[str, Sequence[Group]]], *, short: bool) -> tuple[tuple[Group, ...], ...]:
    """Number the tiers; `short` leaves out those that add nothing."""
    kept: list[tuple[Group, ...]] = []
    stands_for: dict[int, Group] = {}
    for tier_name, groups in found:
        if not groups:
            continue
        made = []
        same = short and bool(kept)
        for group in groups:
            children = tuple(stands_for[id(child)] for child in group.children)
            same = same and len(children) == 1 and not group.loose
            made.append(Group(group.name, len(kept) + 1, tier_name, children, group.loose, group.switches))
        if same:
            for group, new in zip(groups, made, strict=True):
                stands_for[id(group)] = new.children[0]
            continue
        for group, new in zip(groups, made, strict=True):
            stands_for[id(group)] = new
        kept.append(tuple(made))
    return tuple(kept)
