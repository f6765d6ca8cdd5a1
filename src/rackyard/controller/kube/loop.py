"""The controller on a cluster: watches pods, nodes, plans and PodGroups, decides for whole gangs, and acts.

It keeps nothing that the cluster doesn't: killed anywhere, it finds the plans and goes on with them. A plan is stored
before anything is released, and its end before anything is evicted.
"""

import gc
import queue
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rackyard.backends.kubernetes.bulk import Bulk
from rackyard.backends.kubernetes.client import JSON, ApiError, Client
from rackyard.backends.kubernetes.watch import Gone, Put, Synced, Trouble, Watch, What
from rackyard.controller.kube.acts import PLANS, Acts
from rackyard.controller.kube.cache import Cache
from rackyard.controller.kube.differs import differs
from rackyard.controller.kube.objects import PLURAL, GangPlan, Node, Pod, PodGroup
from rackyard.controller.kube.records import RETRY
from rackyard.controller.kube.rounds import Round
from rackyard.errors import UsageError
from rackyard.fabric import Site

SETTLE, SHARE = (0.05, 0.5), 0.2
"""Seconds for which events are gathered before gangs are looked at, at least and at most: so that looking takes no more
than that share of a core while thousands of pods are bound, which needs it more. What has to go on at once never waits.
"""
_VOLCANO = "/apis/scheduling.volcano.sh/v1beta1"
_KINDS: tuple[What[Any], ...] = (
    What("/api/v1/pods", Pod),
    What("/api/v1/nodes", Node),
    What(f"{PLANS}/{PLURAL}", GangPlan),
)
_GROUPS: What[Any] = What(f"{_VOLCANO}/podgroups", PodGroup)

Told = Callable[[str, str, str], None]
"""What happened to a gang: its key, a word, and a line for people."""


@dataclass
class KubeController:
    """One controller on one cluster. `tell` is told what happens to gangs, once for each change; with `act` off it
    says what it would do, and writes nothing.
    """

    client: Client
    site: Site
    tell: Told
    act: bool = True
    nodes: Callable[[Any], None] | None = None
    """Told all that happens to nodes, too: one watch is enough."""
    cache: Cache = field(default_factory=Cache)
    _synced: set[type] = field(default_factory=set)
    _kinds: set[type] = field(default_factory=set)
    _events: "queue.Queue[tuple[type, Any]]" = field(default_factory=queue.Queue)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Until `stop`."""
        self._known()
        kinds = (*_KINDS, _GROUPS) if self._volcano() else _KINDS
        self.cache.queues = _GROUPS in kinds
        self._kinds = {what.kind for what in kinds}
        watches = [Watch(self.client, what) for what in kinds]
        threads = [
            threading.Thread(target=self._feed, args=(watch, what.kind), daemon=True)
            for watch, what in zip(watches, kinds, strict=True)
        ]
        bulk = Bulk(self.client)
        rounds = Round(Acts(self.client, bulk), self.site, self.cache, self.tell, self.act)
        for thread in threads:
            thread.start()
        try:
            due, settle = time.monotonic(), SETTLE[0]
            while not self._stopped.is_set():
                matters = self._take(max(0.0, due - time.monotonic()), settle)
                if self._synced < self._kinds:
                    due = time.monotonic() + 1.0
                elif matters or time.monotonic() >= due:
                    began = time.thread_time()
                    wait = self._look(rounds)
                    due = time.monotonic() + wait
                    took = time.thread_time() - began
                    settle = min(max(took / SHARE, SETTLE[0]), SETTLE[1]) if wait > 0 else 0.0
        finally:
            for watch in watches:
                watch.stop()
            for thread in threads:
                thread.join(timeout=5)
            bulk.close()

    def _look(self, rounds: Round) -> float:
        """One round. What nobody thought of is said, and tried again: the controller is one for all gangs."""
        try:
            return rounds.look(datetime.now(UTC))
        except Exception as error:  # noqa: BLE001 - it is said
            where = traceback.extract_tb(error.__traceback__)[-1]
            self.tell("", "Trouble", f"a round failed at {where.name}: {type(error).__name__}: {error}")
            return RETRY

    def _noted(self, event: Put[Any] | Gone[Any], kind: type) -> bool:
        """Whether it can matter; one object that nobody thought of ends nothing."""
        try:
            return self.cache.heed(event, kind)
        except Exception as error:  # noqa: BLE001 - it is said
            self.tell("", "Trouble", f"what was told of a {kind.__name__} is left out: {type(error).__name__}: {error}")
            return False

    def stop(self) -> None:
        """End `run` after the round under way."""
        self._stopped.set()
        self._events.put((type(None), None))

    def _compare(self) -> None:
        """Say where the site and the cluster are not the same."""
        if told := differs(self.site, self.cache.nodes):
            self.tell("", "SiteDiffers", told)

    def _known(self) -> None:
        """UsageError where the cluster does not know GangPlans."""
        try:
            self.client.get(PLANS, {}, JSON)
        except ApiError as error:
            if error.status.code == 404:
                fix = "kubectl apply -f deploy/crd.yaml"
                raise UsageError("this cluster does not know GangPlans", where=self.client.server, fix=fix) from None
            if error.status.code != 403:
                raise

    def _volcano(self) -> bool:
        try:
            self.client.get(_VOLCANO, {}, JSON)
        except ApiError as error:
            if error.status.code != 404:
                raise
            return False
        return True

    def _feed(self, watch: Watch[Any], kind: type) -> None:
        for event in watch:
            self._events.put((kind, event))

    def _take(self, wait: float, settle: float) -> bool:
        """Take in what happens within `wait` seconds, and within `settle` more; whether any of it can matter."""
        matters = False
        try:
            matters = self._heed(*self._events.get(timeout=wait))
            until = time.monotonic() + settle
            while True:
                matters |= self._heed(*self._events.get(timeout=max(0.0, until - time.monotonic())))
        except queue.Empty:
            return matters

    def _heed(self, kind: type, event: Any) -> bool:
        if kind is Node and self.nodes is not None:
            self.nodes(event)
        match event:
            case Put() | Gone():
                return self._noted(event, kind)
            case Synced():
                self._synced.add(kind)
                if self._synced == self._kinds:
                    gc.freeze()  # what was listed mostly stays: to look through it again would fall into a decision
                    self.tell("", "Watching", f"{len(self.cache.pods)} pods on {len(self.cache.nodes)} nodes")
                    self._compare()
                return True
            case Trouble(error=error):
                self.tell("", "Trouble", str(error))
        return False
