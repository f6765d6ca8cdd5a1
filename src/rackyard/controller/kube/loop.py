"""The controller on a cluster: watches pods, nodes and plans, decides for whole gangs, and acts.

It keeps nothing that the cluster doesn't: killed anywhere, it finds the plans and goes on with them. A plan is stored
before anything is released; every write may be repeated, and carries the uid of what it was decided on.
"""

import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from rackyard.backends.kubernetes.client import JSON, ApiError, Client
from rackyard.backends.kubernetes.watch import Gone, Key, Put, Synced, Trouble, Watch, What
from rackyard.controller.kube.gangs import Gang, Unready, gangs
from rackyard.controller.kube.objects import GROUP, PLURAL, VERSION, GangPlan, Node, PlanSpec, Pod
from rackyard.controller.kube.steps import Again, Patch, Release, event_of, next_step, plan_of
from rackyard.controller.kube.world import lost, occupancy_of, site_now
from rackyard.errors import RackyardError
from rackyard.fabric import Site
from rackyard.placement import Rejection, Yard, place_on

AT_ONCE = 16
"""Requests under way at a time."""
SETTLE = 0.05
"""Seconds for which events are gathered before gangs are looked at."""
RETRY = 2.0
"""Seconds after which a write that failed is tried again; the client has tried several times by then."""
_PLANS = f"/apis/{GROUP}/{VERSION}"
_STRATEGIC = "application/strategic-merge-patch+json"
_KINDS: tuple[What[Any], ...] = (
    What("/api/v1/pods", Pod),
    What("/api/v1/nodes", Node),
    What(f"{_PLANS}/{PLURAL}", GangPlan),
)

Told = Callable[[str, str, str], None]
"""What happened to a gang: its key, a word, and a line for people."""


@dataclass
class KubeController:
    """One controller on one cluster. `tell` is told what happens to gangs, once for each change."""

    client: Client
    site: Site
    tell: Told
    pods: dict[Key, Pod] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    plans: dict[Key, GangPlan] = field(default_factory=dict)
    _said: dict[str, tuple[str, str]] = field(default_factory=dict)
    _synced: set[type] = field(default_factory=set)
    _again: float = float("inf")
    """When to look again though nothing happened."""
    _events: "queue.Queue[tuple[type, Any]]" = field(default_factory=queue.Queue)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Until `stop`."""
        watches = [Watch(self.client, what) for what in _KINDS]
        threads = [
            threading.Thread(target=self._feed, args=(watch, what.kind), daemon=True)
            for watch, what in zip(watches, _KINDS, strict=True)
        ]
        for thread in threads:
            thread.start()
        try:
            with ThreadPoolExecutor(AT_ONCE) as pool:
                while not self._stopped.is_set():
                    if self._take() and len(self._synced) == len(_KINDS):
                        self._look(pool)
        finally:
            for watch in watches:
                watch.stop()
            for thread in threads:
                thread.join(timeout=5)

    def stop(self) -> None:
        """End `run` after the round under way."""
        self._stopped.set()
        self._events.put((type(None), None))

    def _feed(self, watch: Watch[Any], kind: type) -> None:
        for event in watch:
            self._events.put((kind, event))

    def _take(self) -> bool:
        """Take in what happened; whether there is anything to look at."""
        try:
            first = self._events.get(timeout=max(0.0, min(1.0, self._again - time.monotonic())))
        except queue.Empty:
            if time.monotonic() < self._again:
                return False
            self._again = float("inf")
            return True
        self._heed(*first)
        until = time.monotonic() + SETTLE
        while (left := until - time.monotonic()) > 0:
            try:
                self._heed(*self._events.get(timeout=left))
            except queue.Empty:
                break
        return True

    def _heed(self, kind: type, event: Any) -> None:
        match event:
            case Put(object=found):
                key = Key(found.metadata.namespace, found.metadata.name)
                if kind is Node:
                    self.nodes[key.name] = found
                else:
                    self._keep(kind, key, found)
            case Gone(key=key):
                if kind is Node:
                    self.nodes.pop(key.name, None)
                else:
                    self._cache(kind).pop(key, None)
            case Synced():
                self._synced.add(kind)
            case Trouble(error=error):
                self.tell("", "Trouble", str(error))

    def _keep(self, kind: type, key: Key, found: Any) -> None:
        """What an answer to a write told us already is newer than what a watch tells of the time before."""
        known = self._cache(kind).get(key)
        if known is None or known.metadata.uid != found.metadata.uid or _version(found) >= _version(known):
            self._cache(kind)[key] = found

    def _cache(self, kind: type) -> dict[Key, Any]:
        return self.pods if kind is Pod else self.plans

    # --- deciding ---------------------------------------------------------------------------------------------

    def _look(self, pool: ThreadPoolExecutor) -> None:
        """One round over all gangs: what is planned goes on first, then what waits is placed."""
        found = gangs(self.pods.values())
        plans = {plan.key: plan for plan in self.plans.values()}
        for gang in found:
            if isinstance(gang, Unready):
                self._say(gang.key, gang.reason, gang.message)
        whole = [gang for gang in found if isinstance(gang, Gang)]
        for gang in whole:
            if gang.key in plans:
                self._go_on(gang, plans[gang.key], pool)
        self._drop_leftovers(plans, {gang.key for gang in found})
        waiting = [gang for gang in whole if gang.key not in plans]
        if waiting:
            self._place(waiting)

    def _place(self, waiting: list[Gang]) -> None:
        site = site_now(self.site, self.nodes)
        for gang in sorted(waiting, key=lambda gang: (gang.pods[0].metadata.namespace, gang.key)):
            if not all(pod.gated for pod in gang.pods):
                self._say(gang.key, "NoPlan", "some of its pods were let go before it had a plan: it is left alone")
                continue
            occupancy = occupancy_of(self.pods.values(), self.plans.values(), site)
            began = time.process_time()
            answer = place_on(gang.request, Yard.open(site, occupancy), occupancy)
            took = time.process_time() - began
            if isinstance(answer, Rejection):
                self._say(gang.key, "NoSeat", f"{answer.summary}; fix: {answer.fix}")
                continue
            plan = self._store(gang, plan_of(gang, answer, site))
            if plan is not None:
                self.plans[Key(plan.metadata.namespace, plan.metadata.name)] = plan
                self._say(
                    gang.key, "Placed", f"{len(gang.pods)} pods in {len(answer.segments)} segments, {took * 1e3:.0f} ms"
                )
                self._events.put((type(None), None))  # go on with it at once

    def _go_on(self, gang: Gang, plan: GangPlan, pool: ThreadPoolExecutor) -> None:
        match next_step(gang, plan, lost(plan, self.nodes, self.pods.values())):
            case Release(patches=patches):
                errors = []
                for answer in pool.map(self._patch, patches):
                    if isinstance(answer, Pod):
                        self._keep(Pod, Key(answer.metadata.namespace, answer.metadata.name), answer)
                    else:
                        errors.append(answer)
                if errors:
                    told = f"{len(errors)} of {len(patches)} pods could not be written: {errors[0]}"
                    self._trouble(gang.key, told)
                    return
                if not patches[0].status:
                    self._say(gang.key, "Released", f"{len(patches)} pods are let go to their nodes")
                self._events.put((type(None), None))
            case Again(why=why, pods=pods):
                self._say(gang.key, "Again", why)
                self._delete(plan)
                list(pool.map(self._evict, pods))
            case None if all(pod.spec.node_name for pod in gang.pods):
                self._say(gang.key, "Bound", f"all {len(gang.pods)} pods are on their nodes")
            case _:
                pass

    def _drop_leftovers(self, plans: Mapping[str, GangPlan], alive: set[str]) -> None:
        """Plans of gangs that are gone hold seats for nobody."""
        for key, plan in plans.items():
            if key not in alive:
                self._delete(plan)
                self._said.pop(key, None)

    # --- acting -----------------------------------------------------------------------------------------------

    def _store(self, gang: Gang, spec: PlanSpec) -> GangPlan | None:
        namespace, name = gang.key.split("/")
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "GangPlan",
            "metadata": {"name": name, "namespace": namespace},
            "spec": msgspec.to_builtins(spec),
        }
        path = f"{_PLANS}/namespaces/{namespace}/{PLURAL}"
        try:
            try:
                answer = self.client.post(path, {}, body)
            except ApiError as error:
                if error.status.code != 409:
                    raise
                # Stored by the one before us, or by a try whose answer was lost.
                answer = self.client.get(f"{path}/{name}", {}, JSON)
        except RackyardError as error:
            self._trouble(gang.key, str(error))
            return None
        return msgspec.json.decode(answer, type=GangPlan)

    def _patch(self, patch: Patch) -> Pod | RackyardError:
        meta = patch.pod.metadata
        path = f"/api/v1/namespaces/{meta.namespace}/pods/{meta.name}" + ("/status" if patch.status else "")
        try:
            answer = self.client.patch(path, {"fieldManager": "rackyard"}, JSON, _STRATEGIC, patch.body)
            return msgspec.json.decode(answer, type=Pod)
        except RackyardError as error:
            return error

    def _delete(self, plan: GangPlan) -> None:
        meta = plan.metadata
        path = f"{_PLANS}/namespaces/{meta.namespace}/{PLURAL}/{meta.name}"
        self._gone(lambda: self.client.delete(path, {}, {"preconditions": {"uid": meta.uid}}), plan.key)
        self.plans.pop(Key(meta.namespace, meta.name), None)

    def _evict(self, pod: Pod) -> None:
        """By the Eviction API, which heeds disruption budgets and says so on the pod (DisruptionTarget): a Job whose
        failure policy ignores that makes it anew at once, and counts no failure.
        """
        meta = pod.metadata
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta.name, "namespace": meta.namespace},
            "deleteOptions": {"preconditions": {"uid": meta.uid}},
        }
        path = f"/api/v1/namespaces/{meta.namespace}/pods/{meta.name}/eviction"
        self._gone(lambda: self.client.post(path, {}, body), pod.gang)

    def _gone(self, ask: Callable[[], bytes], gang: str) -> None:
        try:
            ask()
        except ApiError as error:
            if error.status.code not in (404, 409):  # gone, or another one of that name
                self._trouble(gang, str(error))
        except RackyardError as error:
            self._trouble(gang, str(error))

    def _trouble(self, gang: str, line: str) -> None:
        self._say(gang, "Trouble", line)
        self._again = min(self._again, time.monotonic() + RETRY)

    def _say(self, gang: str, word: str, line: str) -> None:
        """Tell it once, here and as an Event of the gang's first pod."""
        if self._said.get(gang) == (word, line):
            return
        self._said[gang] = (word, line)
        self.tell(gang, word, line)
        pod = min((pod for pod in self.pods.values() if pod.gang == gang), key=lambda pod: pod.key, default=None)
        if pod is not None:
            try:
                path = f"/api/v1/namespaces/{pod.metadata.namespace}/events"
                self.client.post(path, {}, event_of(pod, word, line, datetime.now(UTC)))
            except RackyardError as error:
                self.tell(gang, "Trouble", str(error))


def _version(found: Any) -> int:
    """Resource versions count up (Kubernetes API concepts, "Resource versions", since 1.35); 0 for no number."""
    told = found.metadata.resource_version
    return int(told) if told.isdecimal() else 0
