"""A gang that divides over no nodes here: for each rack its own numbers, and the nearest that divide."""

from collections.abc import Sequence

from rackyard.fabric import Node
from rackyard.placement.change import Change, wording
from rackyard.placement.model import RackVerdict, Rejection, Request
from rackyard.placement.remedy import smaller_gang
from rackyard.placement.shape import Misfit, shape_of
from rackyard.placement.sizes import nearest
from rackyard.placement.yard import Yard


def undivided(request: Request, yard: Yard, misfits: Sequence[Misfit]) -> tuple[Rejection, tuple[Change, ...]]:
    """The rejection, and the changes that its fix proposes."""
    told = list(dict.fromkeys(misfit.summary for misfit in misfits))
    constraint, summary = misfits[0].constraint, "; ".join(told)
    changes = nearest(request, yard, constraint)
    if changes:
        fix = _either(request, changes) + ("" if changes[0].now else ", when enough is free")
    else:
        smaller = smaller_gang(request, yard)
        fix, changes = smaller.text, smaller.changes
    return Rejection(constraint, summary, _verdicts(request, yard, constraint), fix), changes


def _either(request: Request, changes: Sequence[Change]) -> str:
    """`gpus: 4 or 8` where only that changes."""
    values = [[getattr(change.request, key) for change in changes] for key in ("gpus", "segment_gpus", "gpus_per_node")]
    for at, form in enumerate(("gpus: {}", "segment: {{gpus: {}}}", "gpus_per_node: {}")):
        said = form.format(" or ".join(str(value) for value in values[at]))
        if all(
            f"`{form.format(value)}`" == wording(request, change.request)
            for value, change in zip(values[at], changes, strict=True)
        ):
            return said
    return ", or ".join(change.text for change in changes)


def _verdicts(request: Request, yard: Yard, constraint: str) -> tuple[RackVerdict, ...]:
    columns = yard.columns
    first: dict[str, Node] = {}
    for each in columns.nodes:
        first.setdefault(each.rack, each)
    said: list[tuple[str, str]] = []
    for group in columns.classes:
        shape = shape_of(request, group)
        if request.gpu_kind not in (None, group.gpu):
            said.append(("node-kind", f"its {group.gpu} nodes are not {request.gpu_kind}"))
        else:
            said.append((shape.constraint, shape.summary) if isinstance(shape, Misfit) else (constraint, ""))
    racks = []
    for rack in columns.site.racks:
        node = first.get(rack.name)
        binding, detail = (
            ("node-kind", "holds no GPUs") if node is None else said[columns.kind[columns.index[node.name]]]
        )
        racks.append(RackVerdict(rack.name, False, binding, detail, 0, 0))
    return tuple(racks)
