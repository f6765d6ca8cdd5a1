"""Making a stored fault happen on the simulated site."""

import logging

from rackyard.backends.local import FaultTarget, LocalBackend, inject
from rackyard.errors import UsageError
from rackyard.fabric import Site
from rackyard.jobs import events as ev
from rackyard.placement import Placement

log = logging.getLogger(__name__)


class SimulatedFaults:
    """Strikes the local backend's nodes. Repeating a strike that has struck changes nothing."""

    def __init__(self, backend: LocalBackend, site: Site) -> None:
        self._backend = backend
        self._site = site

    def inject(self, job: str, strike: ev.FaultInjected, placement: Placement) -> None:
        """Make the fault happen to the nodes, rank or rack that `strike` names."""
        try:
            inject(self._backend, strike.kind, self._target(job, strike, placement))
        except UsageError as error:
            # What was to be hit is gone already: by this very strike, if a controller died right after it.
            log.info("fault %d had nothing left to hit: %s", strike.fault, error)

    def _target(self, job: str, strike: ev.FaultInjected, placement: Placement) -> FaultTarget:
        if strike.kind in ("process", "hang"):
            return FaultTarget(job=job, rank=int(strike.target))
        if strike.kind == "tray":
            return FaultTarget(nodes=(strike.target,))
        here = (*placement.nodes(), *placement.spares)
        nodes = tuple(name for name in here if self._site.node(name).rack == strike.target)
        trays = self._site.rack(strike.target).switch_trays
        return FaultTarget(rack=strike.target, nodes=nodes, part=trays[0].name if trays else "")
