"""Journal lines as observations."""

import dataclasses
from typing import Any

from rackyard.backends.local.journal import Line
from rackyard.faults import observations
from rackyard.faults.observations import Observation

_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        observations.NodeUp,
        observations.NodeWarm,
        observations.NodeLost,
        observations.FabricDown,
        observations.RankStarted,
        observations.RankExited,
        observations.StepDone,
        observations.Resumed,
        observations.CheckpointDone,
        observations.CheckpointDamaged,
        observations.StacksCaptured,
    )
}
_FIELDS = {name: tuple(f.name for f in dataclasses.fields(kind)) for name, kind in _KINDS.items()}


def decode(line: Line) -> Observation | None:
    """The observation of a line; None for lines that only the backend itself reads."""
    kind = line["kind"]
    if kind not in _KINDS:
        return None
    fields = {name: line[name] for name in _FIELDS[kind] if name in line}
    if kind == "NodeWarm":
        fields["modules"] = tuple(fields["modules"])
    observation: Observation = _KINDS[kind](**fields)
    return observation
