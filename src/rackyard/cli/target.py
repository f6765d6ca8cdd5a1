"""Where a job runs: the options that the commands share, and what they open."""

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rackyard.backends.kubernetes.jobs import Jobs
    from rackyard.launch.volcano import Settings

KINDS = ("local", "kubernetes")
_POD_OPTIONS = ("image", "gpus_per_node", "host_network", "priority_class", "mount")
TRIES = 3
"""Tries of a request by a command that a person waits for."""


@dataclass(frozen=True, slots=True)
class Target:
    """What was asked for with --target and its companions."""

    kind: str
    kubeconfig: str | None
    context: str | None
    namespace: str
    pods: "Callable[[str], Settings] | None" = None
    """Of the options of `pod_options`, for a namespace."""

    @property
    def kubernetes(self) -> bool:
        return self.kind == "kubernetes"

    def settings(self) -> "Settings":
        """How the job's pods are to be; for commands with `pod_options`. UsageError for what can't be read."""
        assert self.pods is not None
        return self.pods(self.namespace)

    @contextmanager
    def jobs(self) -> "Iterator[Jobs]":
        """The jobs of the cluster. UsageError without a kubeconfig, or one that can't be used."""
        from rackyard.backends.kubernetes.client import Retry, connect
        from rackyard.backends.kubernetes.jobs import Jobs

        with connect(self.kubeconfig, self.context, Retry(tries=TRIES)) as client:
            yield Jobs(client, self.namespace)


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the options, and their values as its parameter `target`."""

    @functools.wraps(command)
    def called(kind: str, kubeconfig: str | None, context: str | None, namespace: str | None, **rest: Any) -> Any:
        if kind == "local":
            given = {"--kubeconfig": kubeconfig, "--context": context, "--namespace": namespace}
            if names := [name for name, value in given.items() if value]:
                from rackyard.errors import UsageError

                raise UsageError(f"{names[0]} is for Kubernetes only", fix="add --target kubernetes")
        return command(target=Target(kind, kubeconfig, context, namespace or "default"), **rest)

    options = (
        click.option(
            "--target",
            "kind",
            type=click.Choice(KINDS),
            default=lambda: os.environ.get("RACKYARD_TARGET", "local"),
            show_default="RACKYARD_TARGET or local",
            help="What runs the job.",
        ),
        click.option("--kubeconfig", help="Default: KUBECONFIG, ~/.kube/config, or the pod's service account."),
        click.option("--context", help="Context of the kubeconfig; default: the current one."),
        click.option("-n", "--namespace", help="Namespace of the job; default: default."),
    )
    return functools.reduce(lambda made, option: option(made), reversed(options), called)


def not_for_kubernetes(given: Mapping[str, object]) -> None:
    """UsageError for an option that says nothing to a cluster: its controller has the site, and audits it."""
    if names := [name for name, value in given.items() if value]:
        from rackyard.errors import UsageError

        raise UsageError(f"{names[0]} is for --target local only", fix=f"leave {names[0]} out")


def pod_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the options of a job's pods, in `target.settings()`; to be put below `target_options`."""

    @functools.wraps(command)
    def called(target: Target, **given: Any) -> Any:
        mine = {name: given.pop(name) for name in _POD_OPTIONS}

        def settings(namespace: str) -> "Settings":
            from rackyard.launch.volcano import Settings

            rest = {name: value for name, value in mine.items() if name != "mount"}
            return Settings(namespace=namespace, mounts=tuple(_mount(text) for text in mine["mount"]), **rest)

        return command(target=replace(target, pods=settings), **given)

    options = (
        click.option(
            "--image", default="", envvar="RACKYARD_IMAGE", help="Image of the pods; default: RACKYARD_IMAGE."
        ),
        click.option(
            "--gpus-per-node", type=click.IntRange(1, 64), default=4, show_default=True, help="GPUs that a pod takes."
        ),
        click.option("--host-network", is_flag=True, help="Pods use their node's network."),
        click.option("--priority-class", default="", help="The pods' PriorityClass."),
        click.option(
            "--mount",
            multiple=True,
            metavar="CLAIM:PATH",
            help="Mount a volume claim, or a folder of the nodes (/SOURCE:PATH), in every pod (may be repeated).",
        ),
    )
    return functools.reduce(lambda made, option: option(made), reversed(options), called)


def _mount(text: str) -> tuple[str, str]:
    source, _, path = text.rpartition(":")
    if not source or not path.startswith("/"):
        from rackyard.errors import UsageError

        raise UsageError(f"--mount {text!r} can't be read", fix="CLAIM:/PATH, or /SOURCE:/PATH")
    return source, path
