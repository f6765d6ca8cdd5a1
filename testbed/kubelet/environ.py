"""A container's environment and command line, as Kubernetes makes them of a pod. Pure, but for what it is given."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from testbed.kubelet.podspec import Container, EnvVar, KeyRef, Pod

ADDRESS = "127.0.0.1"
"""Every pod's and every node's address: nothing here leaves the machine."""

_REFERENCE = re.compile(r"\$\$|\$\(([^()$\s]+)\)")
_ENTRY = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")

Lookup = Callable[[str, KeyRef], str | None]
"""The value of a key in this pod's namespace: `("configmaps" | "secrets", reference)`; None when it isn't there."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """What to run. `missing` are variables that could not be had, and why: the container can't start without them;
    `odd` are those that are left out.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    missing: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()


def resolve(pod: Pod, container: Container, base: Mapping[str, str], over: Mapping[str, str], look: Lookup) -> Resolved:
    """`base` lies under the container's own variables (PATH and such), `over` lies above them (its GPUs)."""
    env = dict(base) | {"HOSTNAME": pod.metadata.name}
    missing, odd = [], []
    for var in container.env:
        if var.value_from is None:
            env[var.name] = expand(var.value, env)
            continue
        try:
            value = _from(pod, var, look)
        except LookupError as error:
            missing.append(f"{var.name}: {error.args[0]}")
            continue
        except NotImplementedError as error:
            odd.append(f"{var.name} ({error})")
            continue
        if value is not None:
            env[var.name] = value
    env |= over
    argv = tuple(expand(word, env) for word in (*container.command, *container.args))
    return Resolved(argv, env, tuple(missing), tuple(odd))


def expand(text: str, env: Mapping[str, str]) -> str:
    """`$(NAME)` by its value, and unchanged where there is none; `$$` is a dollar sign (core/v1 Container.args)."""
    return _REFERENCE.sub(lambda found: "$" if found[0] == "$$" else env.get(found[1], found[0]), text)


def _from(pod: Pod, var: EnvVar, look: Lookup) -> str | None:
    source = var.value_from
    assert source is not None
    if source.field_ref is not None:
        return _field(pod, source.field_ref.field_path)
    for kind, reference in (("configmaps", source.config_map_key_ref), ("secrets", source.secret_key_ref)):
        if reference is not None:
            value = look(kind, reference)
            if value is None and not reference.optional:
                raise LookupError(f"no key {reference.key} in {kind} {reference.name}")
            return value
    raise NotImplementedError("valueFrom of a kind that this kubelet does not read")


def _field(pod: Pod, path: str) -> str:
    if entry := _ENTRY.fullmatch(path):
        where = pod.metadata.labels if entry[1] == "labels" else pod.metadata.annotations
        return where.get(entry[2], "")
    fields = {
        "metadata.name": pod.metadata.name,
        "metadata.namespace": pod.metadata.namespace,
        "metadata.uid": pod.metadata.uid,
        "spec.nodeName": pod.spec.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.hostIP": ADDRESS,
        "status.hostIPs": ADDRESS,
        "status.podIP": ADDRESS,
        "status.podIPs": ADDRESS,
    }
    if path not in fields:
        raise NotImplementedError(f"fieldRef {path}")
    return fields[path]
