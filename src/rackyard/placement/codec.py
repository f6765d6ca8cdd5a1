"""A placement as plain data and back, for storing in an event."""

from collections.abc import Mapping
from typing import Any

from rackyard.fabric import DomainKey
from rackyard.placement.model import Choice, CostTerm, Placement, RackVerdict, Seat, Segment


def encode(placement: Placement) -> dict[str, Any]:
    """Only dicts, lists, text and numbers; seats as rows, for a gang has many."""
    return {
        "seats": [[s.rank, s.node, s.local_rank, s.gpu, s.nic, s.rail, s.segment] for s in placement.seats],
        "segments": [
            {
                "index": segment.index,
                "domain": [segment.domain.cluster_uuid, segment.domain.clique_id],
                "rack": segment.rack,
                "nodes": list(segment.nodes),
            }
            for segment in placement.segments
        ],
        "spares": list(placement.spares),
        "cost": [[term.name, term.value, term.meaning] for term in placement.cost],
        "racks": [[v.rack, v.chosen, v.binding, v.detail, v.free_nodes, v.needed] for v in placement.racks],
        "choices": [[c.segment, c.way, c.chosen, c.ranks, c.detail] for c in placement.choices],
    }


def decode(data: Mapping[str, Any]) -> Placement:
    """What `encode` made, also after a trip through JSON. KeyError, TypeError or ValueError for anything else."""
    return Placement(
        seats=tuple(Seat(*row) for row in data["seats"]),
        segments=tuple(
            Segment(int(part["index"]), DomainKey(*part["domain"]), str(part["rack"]), tuple(part["nodes"]))
            for part in data["segments"]
        ),
        spares=tuple(data["spares"]),
        cost=tuple(CostTerm(name, float(value), meaning) for name, value, meaning in data["cost"]),
        racks=tuple(RackVerdict(*row) for row in data["racks"]),
        choices=tuple(Choice(*row) for row in data.get("choices", ())),  # older events have none
    )
