"""What is read of pods and of our own plans: only the fields that decisions need."""

from typing import Any

import msgspec

from rackyard.backends.kubernetes.watch import Meta

GROUP, VERSION, PLURAL = "rackyard.io", "v1alpha1", "gangplans"
GATE = "rackyard.io/placement"
"""The scheduling gate that holds a gang's pods until they are placed."""
GANG = "rackyard.io/gang"
"""Label: the gang that a pod belongs to."""
SIZE = "rackyard.io/gang-size"
"""Annotation: how many pods the gang has."""
REQUEST = "rackyard.io/request"
"""Annotation: what the gang asks of placement, as JSON of `placement.Request`, without what the pods say themselves."""
RANK = "rackyard.io/rank"
"""Annotation: the pod's place in the gang, from 0."""
SEGMENT, SEATS = "rackyard.io/segment", "rackyard.io/seats"
"""Annotations that a release writes: the pod's segment, and its ranks as `rank:gpu:nic`, comma-separated."""
GPU = "nvidia.com/gpu"


class PodMeta(Meta, frozen=True, rename="camel"):
    """A pod's metadata."""

    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    deletion_timestamp: str = ""


class _Gate(msgspec.Struct, frozen=True):
    name: str = ""


class _Resources(msgspec.Struct, frozen=True):
    limits: dict[str, str | int] = {}
    requests: dict[str, str | int] = {}


class _Container(msgspec.Struct, frozen=True):
    resources: _Resources = _Resources()


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    scheduling_gates: tuple[_Gate, ...] = ()
    containers: tuple[_Container, ...] = ()
    affinity: dict[str, Any] | None = None


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = "Pending"
    nominated_node_name: str = ""


class Pod(msgspec.Struct, frozen=True):
    """A pod."""

    metadata: PodMeta
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def gang(self) -> str:
        """`namespace/name` of its gang; empty for a pod of none."""
        name = self.metadata.labels.get(GANG, "")
        return f"{self.metadata.namespace}/{name}" if name else ""

    @property
    def gated(self) -> bool:
        """Whether our gate holds it."""
        return any(gate.name == GATE for gate in self.spec.scheduling_gates)

    @property
    def over(self) -> bool:
        """Whether it holds nothing any more."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def gpus(self) -> int:
        """GPUs of all its containers. ValueError for a quantity that is no whole number."""
        return sum(_gpus(container.resources) for container in self.spec.containers)


class _NodeSpec(msgspec.Struct, frozen=True):
    unschedulable: bool = False


class _Condition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""


class _Room(msgspec.Struct, frozen=True):
    gpus: str | int = msgspec.field(default=0, name=GPU)


class _NodeStatus(msgspec.Struct, frozen=True):
    allocatable: _Room = _Room()
    conditions: tuple[_Condition, ...] = ()


class NodeMeta(Meta, frozen=True, rename="camel"):
    """A node's metadata."""

    labels: dict[str, str] = msgspec.field(default_factory=dict)


class Node(msgspec.Struct, frozen=True):
    """A node: what a site is made from."""

    metadata: NodeMeta
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()

    @property
    def trouble(self) -> str:
        """Why it takes no new pod; empty when it does."""
        if self.spec.unschedulable:
            return "was cordoned"
        ready = next((c.status for c in self.status.conditions if c.type == "Ready"), "Unknown")
        return "" if ready == "True" else "was not ready"


class Member(msgspec.Struct, frozen=True):
    """One pod of a plan, and where it goes."""

    pod: str
    """Its name."""
    uid: str
    node: str
    segment: int
    seats: str
    """As in the annotation."""


class PlanSpec(msgspec.Struct, frozen=True, rename="camel"):
    """A gang's placement. `cost` is what it was chosen by (`placement.cost.TERMS`)."""

    gang: str
    site_digest: str
    members: tuple[Member, ...]
    spares: tuple[str, ...] = ()
    cost: dict[str, float] = {}


class GangPlan(msgspec.Struct, frozen=True):
    """The custom resource, stored before anything is released."""

    metadata: Meta
    spec: PlanSpec

    @property
    def key(self) -> str:
        """`namespace/name` of the gang."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


def _gpus(resources: _Resources) -> int:
    told = resources.limits.get(GPU, resources.requests.get(GPU, 0))
    return int(told)
