"""What the watches have told: pods by gang, nodes, plans, PodGroups; and which gangs changed since the last look."""

from dataclasses import dataclass, field
from typing import Any

from rackyard.backends.kubernetes.watch import Gone, Key, Put
from rackyard.controller.kube.gangs import Gang, Unready, gang_of
from rackyard.controller.kube.kinds import GROUP, gang_name
from rackyard.controller.kube.objects import GangPlan, Node, Pod, PodGroup


@dataclass
class Cache:
    """The cluster, as far as we know it."""

    pods: dict[Key, Pod] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    plans: dict[Key, GangPlan] = field(default_factory=dict)
    groups: dict[Key, PodGroup] = field(default_factory=dict)
    queues: bool = False
    """Whether there are PodGroups to heed."""
    _members: dict[str, dict[Key, Pod]] = field(default_factory=dict)
    _gang: dict[Key, str] = field(default_factory=dict)
    _dirty: set[str] = field(default_factory=set)
    _found: dict[str, Gang | Unready] = field(default_factory=dict)

    def heed(self, event: Put[Any] | Gone[Any], kind: type) -> bool:
        """Take it in; whether it can matter to a decision."""
        if isinstance(event, Put):
            return self.put(event.object)
        if kind is Pod:
            return self._drop(event.key)
        if kind is Node:
            return self.nodes.pop(event.key.name, None) is not None
        if kind is GangPlan:
            return self.plans.pop(event.key, None) is not None
        self._touch_group(event.key)
        return self.groups.pop(event.key, None) is not None

    def put(self, found: Pod | Node | GangPlan | PodGroup) -> bool:
        """Take in an object, unless we know a newer one: an answer to a write comes before the watch tells of it."""
        key = Key(found.metadata.namespace, found.metadata.name)
        match found:
            case Node():
                before = self.nodes.get(key.name)
                self.nodes[key.name] = found
                return before is None or _told(before) != _told(found)
            case Pod():
                return self._put_pod(key, found)
            case GangPlan():
                known = self.plans.get(key)
                if known is not None and not _newer(found, known):
                    return False
                self.plans[key] = found
            case PodGroup():
                self.groups[key] = found
                self._touch_group(key)
        return True

    def gangs(self) -> dict[str, Gang | Unready]:
        """All gangs that have pods, by key."""
        for key in sorted(self._dirty):
            pods = self._members.get(key)
            if pods:
                self._found[key] = self._made(key, pods)
            else:
                self._found.pop(key, None)
        self._dirty.clear()
        return self._found

    def _made(self, key: str, pods: dict[Key, Pod]) -> Gang | Unready:
        """One gang that nobody thought of must not stand in the way of all others."""
        try:
            return gang_of(key, list(pods.values()), self._group(pods))
        except Exception as error:  # noqa: BLE001 - it is said on the gang
            return Unready(key, "Broken", f"can't be read: {type(error).__name__}: {error}", tuple(pods.values()))

    def changed(self) -> frozenset[str]:
        """The gangs that `gangs` will look at anew."""
        return frozenset(self._dirty)

    def members(self, gang: str) -> list[Pod]:
        """The pods of a gang, those that have ended included."""
        return list(self._members.get(gang, {}).values())

    def _put_pod(self, key: Key, pod: Pod) -> bool:
        known = self.pods.get(key)
        if known is not None and not _newer(pod, known):
            return False
        name = gang_name(pod)
        gang = f"{key.namespace}/{name}" if name else ""
        old = self._gang.get(key, "")
        if old and old != gang:
            self._leave(key, old)
        self.pods[key] = pod
        if gang:
            self._gang[key] = gang
            self._members.setdefault(gang, {})[key] = pod
            self._dirty.add(gang)
            return True
        return bool(old) or known is None or (known.spec.node_name, known.over) != (pod.spec.node_name, pod.over)

    def _drop(self, key: Key) -> bool:
        if gang := self._gang.get(key, ""):
            self._leave(key, gang)
        return self.pods.pop(key, None) is not None

    def _leave(self, key: Key, gang: str) -> None:
        """A pod is none of the gang's any more."""
        del self._gang[key]
        self._members[gang].pop(key, None)
        if not self._members[gang]:
            del self._members[gang]
        self._dirty.add(gang)

    def _group(self, pods: dict[Key, Pod]) -> PodGroup | None:
        first = next(iter(pods.values()))
        name = first.metadata.annotations.get(GROUP, "")
        if not self.queues or not name or first.spec.scheduler_name != "volcano":
            return None
        none = PodGroup(first.metadata)  # not made yet: neither a size nor a phase
        return self.groups.get(Key(first.metadata.namespace, name), none)

    def _touch_group(self, key: Key) -> None:
        named = {
            gang
            for gang, pods in self._members.items()
            if gang.startswith(f"{key.namespace}/")
            and next(iter(pods.values())).metadata.annotations.get(GROUP) == key.name
        }
        self._dirty |= named


def _told(node: Node) -> tuple[Any, ...]:
    meta, spec, status = node.metadata, node.spec, node.status
    return (node.trouble, node.fault, status.allocatable, node.address, meta.labels, spec.taints)


def _newer(found: Any, known: Any) -> bool:
    return found.metadata.uid != known.metadata.uid or _version(found) >= _version(known)


def _version(found: Any) -> int:
    """Resource versions count up (Kubernetes API concepts, "Resource versions", since 1.35); 0 for no number."""
    told = found.metadata.resource_version
    return int(told) if told.isdecimal() else 0
