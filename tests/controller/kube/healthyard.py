"""Nodes whose health is judged, in this process: no clock runs, and what is decided is done at once."""

from dataclasses import replace

from rackyard.controller.kube.attribution import Layout
from rackyard.controller.kube.health import Do, Memory, Now, Options, Verdict, decide
from rackyard.controller.kube.signals import Kind, Reading, Signal
from rackyard.fabric import Site, simulate

SITE = simulate(3, 4)
WALL = 1_800_000_000.0
ORIGIN = {
    Kind.NVLINK: "rackyard.io/NVLinkDown",
    Kind.FABRIC: "rackyard.io/FabricDegraded",
    Kind.GPU: "rackyard.io/GPUFault",
    Kind.NIC: "rackyard.io/NICDown",
    Kind.SWITCH: "NVSwitchDown",
    Kind.SYSTEM: "KernelDeadlock",
    Kind.OUT: "taint node.kubernetes.io/out-of-service",
    Kind.LOST: "Ready=Unknown",
}
RACK = ("r01-t01", "r01-t02", "r01-t03", "r01-t04")


class Yard:
    """Nodes that do as they are told, and a controller that may be started anew."""

    def __init__(self, site: Site = SITE, **options: object) -> None:
        self.layout, self.options = Layout.of(site), Options(mode="act", **options)  # type: ignore[arg-type]
        self.nodes = {node.name: Reading(node.name) for node in site.nodes}
        self.memory, self.now = Memory(), 1000.0

    def say(self, node: str, kind: Kind, text: str = "") -> None:
        signal = Signal(node, kind, ORIGIN[kind], text, WALL + self.now)
        reading = self.nodes[node]
        ready = reading.ready and kind is not Kind.LOST
        self.nodes[node] = replace(reading, signals=(*reading.signals, signal), ready=ready)

    def clear(self, node: str, kind: Kind | None = None) -> None:
        left = tuple(s for s in self.nodes[node].signals if kind not in (None, s.kind))
        self.nodes[node] = replace(
            self.nodes[node], signals=left, ready=not any(s.kind is Kind.LOST for s in left), doubts=()
        )

    def set(self, node: str, **fields: object) -> None:
        self.nodes[node] = replace(self.nodes[node], **fields)  # type: ignore[arg-type]

    def look(self, after: float = 0.0) -> Verdict:
        """What is decided `after` seconds from now, and done at once."""
        self.now += after
        found = decide(self.nodes, self.layout, self.memory, self.options, Now(self.now, WALL + self.now))
        self.memory = found.memory
        for step in found.steps:
            match step.do:
                case Do.CORDON:
                    self.set(step.on.node, cordoned=True, mark=step.mark)
                case Do.MARK:
                    self.set(step.on.node, mark=step.mark)
                case Do.UNCORDON:
                    self.set(step.on.node, cordoned=False, mark=None, overruled=(), before=step.on.mark)
                case Do.OVERRULE:
                    self.set(step.on.node, mark=None, overruled=(*step.on.overruled, step.mark))
                case Do.FORGET:
                    self.set(step.on.node, overruled=())
        return found

    def ours(self) -> list[str]:
        return [name for name, reading in self.nodes.items() if reading.mark]
