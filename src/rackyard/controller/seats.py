"""What jobs hold on the site. Pure."""

from collections.abc import Iterable

from rackyard.fabric import Site
from rackyard.jobs.state import JobState
from rackyard.placement import Occupancy, Placement, decode


def nodes_of(state: JobState) -> tuple[str, ...]:
    """Every node that the job uses or keeps as a spare."""
    if state.attempt is None:
        return ()
    placement = decode(dict(state.attempt.placement))
    return tuple(dict.fromkeys((*(seat.node for seat in placement.seats), *placement.spares)))


def occupancy_of(jobs: Iterable[JobState], site: Site) -> Occupancy:
    """What the unfinished ones of `jobs` hold on the site."""
    used: dict[str, frozenset[int]] = {}
    owners: dict[str, tuple[str, ...]] = {}
    names: dict[str, str] = {}
    for state in jobs:
        if not state.phase.over and state.attempt is not None:
            names[state.job] = state.name
            for node, gpus in held(decode(dict(state.attempt.placement)), site).items():
                used[node] = used.get(node, frozenset()) | gpus
                owners[node] = (*owners.get(node, ()), state.job)
    return Occupancy(used, owners, names)


def held(placement: Placement, site: Site) -> dict[str, frozenset[int]]:
    """The GPU indices that a placement holds on each node; a spare is held whole."""
    out: dict[str, frozenset[int]] = {}
    for seat in placement.seats:
        out[seat.node] = out.get(seat.node, frozenset()) | {seat.gpu}
    for name in placement.spares:
        out[name] = frozenset(gpu.index for gpu in site.node(name).gpus)
    return out
