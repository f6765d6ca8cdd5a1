"""Takes pods off their nodes by eviction, and asks for none twice in a row."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from rackyard.controller.kube.acts import Acts, Taken
from rackyard.controller.kube.cache import Cache
from rackyard.controller.kube.objects import Pod


@dataclass
class Leaving:
    """What was asked for within `pause` seconds is not asked for again: the API server takes 10 s to refuse the
    eviction of a pod that was made anew meanwhile (its `EvictionsRetry`), and the watch may not have told of that yet.
    """

    acts: Acts
    cache: Cache
    pause: float
    _asked: dict[Taken, tuple[datetime, str]] = field(default_factory=dict)
    """When, and what went wrong."""

    def of(self, pods: Iterable[Pod]) -> list[Taken]:
        """Those pods; at once where their node is not there to end them in peace."""
        ready = {name for name, node in self.cache.nodes.items() if node.ready}
        return [
            Taken(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid, pod.spec.node_name not in ready)
            for pod in pods
            if not pod.metadata.deletion_timestamp or pod.spec.node_name not in ready
        ]

    def take(self, pods: list[Taken], now: datetime) -> tuple[list[str], bool]:
        """Evict them; what went wrong, now or just before, and whether some are left for later."""
        if not pods:
            return [], False
        going = {pod.metadata.uid for pod in self.cache.pods.values() if pod.metadata.deletion_timestamp}
        asked = [pod for pod in pods if pod.at_once or pod.uid not in going]
        late = {pod: was for pod, was in self._asked.items() if 0 <= (now - was[0]).total_seconds() < self.pause}
        new = [pod for pod in asked if pod not in late]
        answers = self.acts.evict(new) if new else []
        told = ["" if error is None else str(error) for error in answers]
        self._asked = late | {pod: (now, line) for pod, line in zip(new, told, strict=True)}
        lines = [*told, *(late[pod][1] for pod in asked if pod in late)]
        return [line for line in lines if line], len(new) < len(asked)
