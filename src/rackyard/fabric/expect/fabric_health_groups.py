"""One fault, one finding: a rack or a node all of whose GPUs say the same is told once, not a GPU at a time."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rackyard.fabric.expect.context import Context
from rackyard.fabric.expect.parts import GpuView
from rackyard.fabric.expect.rules import Rule
from rackyard.fabric.facts import Source
from rackyard.findings import Finding


@dataclass(frozen=True, slots=True)
class Fault:
    """What one GPU has. `field` is the fact that tells it, `peer` the line of a GPU that is well."""

    gpu: GpuView
    field: str
    summary: str
    advice: str
    peer: Source | None = None


def told(rule: Rule, ctx: Context, faults: Sequence[Fault]) -> Iterator[Finding]:
    """A finding for a rack all of whose GPUs have the same fault, for such a node, and for each other GPU."""
    if not faults:
        return
    size = Counter(node.rack for node, _ in ctx.gpus())
    same: dict[tuple[str, str], list[Fault]] = defaultdict(list)
    for fault in faults:
        same[ctx.nodes[fault.gpu.node].rack, fault.summary].append(fault)
    for (rack, _), own in same.items():
        nodes: dict[str, list[Fault]] = defaultdict(list)
        for fault in own:
            nodes[fault.gpu.node].append(fault)
        if rack and len(nodes) > 1 and len(own) == size[rack]:
            yield _finding(rule, own, f"rack {rack}, all {len(own)} GPUs")
            continue
        for name, mine in nodes.items():
            if len(mine) > 1 and len(mine) == len(ctx.nodes[name].gpus):
                yield _finding(rule, mine, ctx.at(name, f"all {len(mine)} GPUs"))
            else:
                yield from (_finding(rule, [fault], ctx.at(name, fault.gpu.label)) for fault in mine)


def _finding(rule: Rule, faults: Sequence[Fault], subject: str) -> Finding:
    first = faults[0]
    # One line of each node first: eight lines of two trays would not show that it is the rack.
    each = {fault.gpu.node: fault for fault in reversed(faults)}
    shown = list(reversed(each.values())) if len(each) > 1 else faults
    lines = [fault.gpu.source(fault.field) for fault in shown]
    proof = [*lines[:4], first.peer] if first.peer else lines
    return rule.fail(subject, first.summary, proof, first.advice)
