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
MASTER = "rackyard.io/master"
"""Annotation that a release writes: `host:port` at which rank 0 is met."""
ATTEMPT = "rackyard.io/attempt"
"""Annotation that a release writes: which plan of the gang it is, from 1."""
RACK, DOMAIN, RAILS = "rackyard.io/rack", "rackyard.io/domain", "rackyard.io/rails"
"""Annotations that a release writes: where the pod's node is, and the rails of its seats' NICs, comma-separated."""
FAULT = "rackyard.io/fault"
"""Annotation of a node that we cordoned: why, as JSON of `Mark`. What bears it is out of use, and gangs leave it."""
GPU = "nvidia.com/gpu"


class Owner(msgspec.Struct, frozen=True, rename="camel"):
    """Who made an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class PodMeta(Meta, frozen=True, rename="camel"):
    """A pod's metadata."""

    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    owner_references: tuple[Owner, ...] = ()
    creation_timestamp: str = ""
    deletion_timestamp: str = ""


class Condition(msgspec.Struct, frozen=True, rename="camel"):
    """A condition of a pod or node; the time is RFC 3339, as the API server has it."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class _Gate(msgspec.Struct, frozen=True):
    name: str = ""


class _Resources(msgspec.Struct, frozen=True):
    limits: dict[str, str | int] = {}
    requests: dict[str, str | int] = {}


class _Container(msgspec.Struct, frozen=True):
    resources: _Resources = _Resources()


class Claim(msgspec.Struct, frozen=True, rename="camel"):
    """A resource claim of a pod (DRA): made for it from a template, or none of our concern."""

    name: str = ""
    resource_claim_template_name: str = ""


class Toleration(msgspec.Struct, frozen=True):
    """Which taints a pod bears: an empty key or effect is any."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    scheduler_name: str = "default-scheduler"
    scheduling_gates: tuple[_Gate, ...] = ()
    containers: tuple[_Container, ...] = ()
    affinity: dict[str, Any] | None = None
    hostname: str = ""
    subdomain: str = ""
    priority: int = 0
    preemption_policy: str = "PreemptLowerPriority"
    active_deadline_seconds: int | None = None
    resource_claims: tuple[Claim, ...] = ()


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = "Pending"
    nominated_node_name: str = ""
    conditions: tuple[Condition, ...] = ()


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
    def gated(self) -> bool:
        """Whether our gate holds it."""
        return any(gate.name == GATE for gate in self.spec.scheduling_gates)

    @property
    def elsewhere(self) -> tuple[str, ...]:
        """The gates of others that hold it."""
        return tuple(gate.name for gate in self.spec.scheduling_gates if gate.name != GATE)

    @property
    def released(self) -> bool:
        """Whether a plan let it go."""
        return not self.gated and SEATS in self.metadata.annotations

    @property
    def refused(self) -> Condition | None:
        """What the scheduler says of why it can't be bound."""
        if self.spec.node_name:
            return None
        told = (each for each in self.status.conditions if each.type == "PodScheduled")
        return next((each for each in told if each.status == "False" and each.reason == "Unschedulable"), None)

    @property
    def over(self) -> bool:
        """Whether it holds nothing any more."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def gpus(self) -> int:
        """GPUs of all its containers. ValueError for a quantity that is no whole number."""
        return sum(_gpus(container.resources) for container in self.spec.containers)


class Taint(msgspec.Struct, frozen=True, rename="camel"):
    """A taint of a node."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str = ""


class _NodeSpec(msgspec.Struct, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class _Address(msgspec.Struct, frozen=True):
    type: str = ""
    address: str = ""


class _Room(msgspec.Struct, frozen=True):
    gpus: str | int = msgspec.field(default=0, name=GPU)


class _NodeStatus(msgspec.Struct, frozen=True):
    allocatable: _Room = _Room()
    conditions: tuple[Condition, ...] = ()
    addresses: tuple[_Address, ...] = ()


class NodeMeta(Meta, frozen=True, rename="camel"):
    """A node's metadata."""

    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a node was cordoned by us."""

    cause: str
    """`faults.attribute.Cause`."""
    subject: str
    """The node, the rack or the switch tray that is at fault."""
    summary: str
    """A line for people."""
    at: str
    """When it was seen, RFC 3339."""
    times: int = 1
    """How often it was marked since it was last well for a day, this time included."""


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
        return "" if self.ready else "was not ready"

    @property
    def gpus(self) -> int:
        """GPUs that pods may have; 0 for what is no whole number."""
        told = str(self.status.allocatable.gpus)
        return int(told) if told.isdecimal() else 0

    @property
    def ready(self) -> bool:
        """Whether its kubelet says that it is."""
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions)

    @property
    def fault(self) -> str:
        """Why we took it out of use, as a line; empty when we didn't."""
        told = self.metadata.annotations.get(FAULT)
        if told is None:
            return ""
        try:
            return msgspec.json.decode(told, type=Mark).summary
        except msgspec.MsgspecError:
            return "was marked as faulty"

    @property
    def address(self) -> str:
        """Its InternalIP; its name where it has none."""
        return next((each.address for each in self.status.addresses if each.type == "InternalIP"), self.metadata.name)


class PlanMeta(Meta, frozen=True, rename="camel"):
    """A plan's metadata."""

    creation_timestamp: str = ""


class Member(msgspec.Struct, frozen=True):
    """One pod of a plan, and where it goes."""

    pod: str
    """Its name."""
    uid: str
    node: str
    segment: int
    seats: str
    """As in the annotation."""


class Victim(msgspec.Struct, frozen=True):
    """A pod of lower priority that has to go first."""

    namespace: str
    pod: str
    uid: str


class PlanSpec(msgspec.Struct, frozen=True, rename="camel"):
    """A gang's placement, never changed. `cost` is what it was chosen by (`placement.cost.TERMS`)."""

    gang: str
    """Its name, in the namespace of the plan."""
    attempt: int
    """From 1; each new placement of the gang is one."""
    site_digest: str
    members: tuple[Member, ...]
    spares: tuple[str, ...] = ()
    cost: dict[str, float] = {}
    victims: tuple[Victim, ...] = ()
    why: str = ""
    """What ended the attempt before."""


class PlanStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How far a plan has come. Times are RFC 3339."""

    phase: str = "Planned"
    """Planned, Preempting, Released, Bound or Ended."""
    reason: str = ""
    """Of the end: a word."""
    message: str = ""
    refused: tuple[str, ...] = ()
    """Nodes that the scheduler would not bind its pods to."""
    released_at: str = ""
    bound_at: str = ""
    ended_at: str = ""


class GangPlan(msgspec.Struct, frozen=True):
    """The custom resource, stored before anything is released. Ended ones are kept as the gang's history."""

    metadata: PlanMeta
    spec: PlanSpec
    status: PlanStatus = PlanStatus()

    @property
    def key(self) -> str:
        """`namespace/name` of the gang."""
        return f"{self.metadata.namespace}/{self.spec.gang}"

    @property
    def ended(self) -> bool:
        """Whether nothing goes on with it."""
        return self.status.phase == "Ended"


class _GroupSpec(msgspec.Struct, frozen=True, rename="camel"):
    min_member: int = 0
    queue: str = ""


class _GroupStatus(msgspec.Struct, frozen=True):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class PodGroup(msgspec.Struct, frozen=True):
    """Volcano's PodGroup (scheduling.volcano.sh/v1beta1)."""

    metadata: Meta
    spec: _GroupSpec = _GroupSpec()
    status: _GroupStatus = _GroupStatus()

    @property
    def admitted(self) -> bool:
        """Whether its queue has let it in: Volcano calls that Inqueue, and Running or Unknown later on."""
        return self.status.phase not in ("", "Pending")


def _gpus(resources: _Resources) -> int:
    told = resources.limits.get(GPU, resources.requests.get(GPU, 0))
    try:
        return int(told)
    except ValueError:
        raise ValueError(f"{GPU}: {told!r} is no whole number") from None
