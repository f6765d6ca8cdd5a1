"""What the kubelet reads of a pod: the used fields of core/v1, and that others are there."""

from datetime import datetime

import msgspec

from rackyard.backends.kubernetes.watch import Meta

GPU = "nvidia.com/gpu"


class _Struct(msgspec.Struct, frozen=True, rename="camel"):
    pass


class FieldRef(_Struct, frozen=True):
    """Downward API: a field of the pod."""

    field_path: str = ""


class KeyRef(_Struct, frozen=True):
    """One key of a ConfigMap or Secret."""

    name: str = ""
    key: str = ""
    optional: bool = False


class ValueFrom(_Struct, frozen=True):
    """Where a variable's value comes from."""

    field_ref: FieldRef | None = None
    config_map_key_ref: KeyRef | None = None
    secret_key_ref: KeyRef | None = None


class EnvVar(_Struct, frozen=True):
    """One variable."""

    name: str
    value: str = ""
    value_from: ValueFrom | None = None


class Resources(_Struct, frozen=True):
    """Quantities by resource, as written."""

    limits: dict[str, str | int | float] = {}
    requests: dict[str, str | int | float] = {}


class Container(_Struct, frozen=True):
    """One container; the last fields are only asked whether they are there."""

    name: str
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[EnvVar, ...] = ()
    resources: Resources = Resources()
    env_from: tuple[msgspec.Raw, ...] = ()
    volume_mounts: tuple[msgspec.Raw, ...] = ()
    liveness_probe: msgspec.Raw = msgspec.Raw()
    readiness_probe: msgspec.Raw = msgspec.Raw()
    startup_probe: msgspec.Raw = msgspec.Raw()
    lifecycle: msgspec.Raw = msgspec.Raw()

    def gpus(self) -> int:
        """How many GPUs it asks for. Extended resources are whole numbers, with limits equal to requests."""
        asked = str(self.resources.limits.get(GPU, self.resources.requests.get(GPU, 0)))
        return int(asked) if asked.isascii() and asked.isdigit() else 0


class PodSpec(_Struct, frozen=True):
    """What is to run, and where."""

    node_name: str = ""
    restart_policy: str = "Always"
    service_account_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[msgspec.Raw, ...] = ()


class PodMeta(Meta, frozen=True, rename="camel"):
    """Who it is. Times are RFC 3339, to the second."""

    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    deletion_timestamp: str = ""

    def deadline(self) -> float | None:
        """When a pod that is being deleted has had its grace (seconds since 1970); None when it is not being deleted.
        The server writes the time of the request plus the grace period, cut to the second, hence one more.
        """
        if not self.deletion_timestamp:
            return None
        return datetime.fromisoformat(self.deletion_timestamp).timestamp() + 1.0


class PodStatus(_Struct, frozen=True):
    """What the API server has of the pod's state."""

    phase: str = ""


class Pod(_Struct, frozen=True):
    """A pod."""

    metadata: PodMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def __str__(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"


def left_out(pod: Pod) -> list[str]:
    """What the pod asks for that this kubelet does not do, for people to read; images go without saying."""
    found = ["init containers"] if pod.spec.init_containers else []
    for container in pod.spec.containers:
        parts = {
            "volumes": bool(container.volume_mounts),
            "envFrom": bool(container.env_from),
            "probes": any(map(len, (container.liveness_probe, container.readiness_probe, container.startup_probe))),
            "lifecycle hooks": len(container.lifecycle) > 0,
        }
        found += [f"{part} of container {container.name}" for part, there in parts.items() if there]
    return found
