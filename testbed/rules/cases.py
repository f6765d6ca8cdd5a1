"""Random cases: a site of a few small racks, nodes in use, and gangs that come one after the other."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rackyard.fabric import Site
from rackyard.fabric.simulate import simulate
from rackyard.placement import Request

GPUS = 4
"""Of a tray."""

MODES = {
    "volcano": ("any tier", "domain", "partitions", "soft"),
    "kueue": ("preferred", "required", "slices"),
}
"""What a gang asks for. `domain` and `required`: one NVLink domain or nothing. `any tier` is Volcano's hard mode with
the highest tier allowed; `partitions` and `slices` keep parts of the gang inside a domain each.
"""

Seated = Mapping[str, int]
"""Pods on each node, by the node's name in the site; what a scheduler did not admit has none."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A gang of `pods`, each of so many `gpus`; `part` pods must share a domain, where the mode has parts."""

    mode: str
    pods: int
    gpus: int
    part: int = 0

    @property
    def apart(self) -> bool:
        """Whether two pods would fit on a node: as a request's ranks are spread one pod a node, they are kept apart."""
        return self.pods > 1 and 2 * self.gpus <= GPUS

    def request(self) -> Request:
        """The gang as a replay would ask for it."""
        total = self.pods * self.gpus
        part = {"domain": self.pods, "required": self.pods}.get(self.mode, self.part)
        return Request(total, segment_gpus=part * self.gpus or None, gpus_per_node=self.gpus)


@dataclass(frozen=True, slots=True)
class Case:
    """`busy` GPUs of some nodes are in use before the first gang comes."""

    number: int
    site: Site
    busy: Mapping[str, int]
    asks: tuple[Ask, ...]

    @property
    def prefix(self) -> str:
        """Before the names of all its objects: many cases live side by side in a cluster."""
        return f"c{self.number:03d}-"


def draw(scheduler: str, seeds: Sequence[int]) -> list[Case]:
    """One case for each seed: 2 to 5 racks of 2 to 6 trays in blocks of one to three racks, 2 to 4 gangs."""
    return [_case(scheduler, number, seed) for number, seed in enumerate(seeds)]


def _case(scheduler: str, number: int, seed: int) -> Case:
    chance = random.Random(f"{scheduler} {seed}")
    racks = chance.randint(2, 5)
    whole = simulate(racks, 6, racks_per_block=chance.choice((0, 1, 2, 2, 3)), name=f"c{number:03d}")
    trays = {rack.name: chance.randint(2, 6) for rack in whole.racks}
    left = dict(trays)
    nodes = []
    for node in whole.nodes:
        if left[node.rack]:
            left[node.rack] -= 1
            nodes.append(node)
    site = replace(whole, nodes=tuple(nodes))
    busy = {node.name: chance.choice((1, 2, 3, 4, 4, 4)) for node in site.nodes if chance.random() < 0.3}
    asks = tuple(_ask(chance, MODES[scheduler], len(nodes)) for _ in range(chance.randint(2, 4)))
    return Case(number, site, busy, asks)


def _ask(chance: random.Random, modes: Sequence[str], nodes: int) -> Ask:
    mode, gpus = chance.choice(modes), chance.choice((1, 2, 3, 4, 4, 4))
    part = chance.randint(2, 4) if mode in ("partitions", "slices") else 0
    largest = chance.choice((1, 4, 8, 20))  # small gangs are as frequent as large ones
    pods = chance.randint(1, max(1, min(largest, nodes)))
    return Ask(mode, -(-pods // part) * part if part else pods, gpus, part)
