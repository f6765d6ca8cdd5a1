"""Where a job runs: the options that the commands share, and what they open."""

import functools
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rackyard.backends.kubernetes.jobs import Jobs
    from rackyard.launch.volcano import Settings

KINDS = ("local", "kubernetes")
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_KUBECTL = re.compile(r"\bkubectl (?P<space>-n \S+ )?(?P<verb>[a-z][a-z-]+)")
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
    """Of `podoptions.pod_options`, for a namespace."""
    named: bool = False
    """Whether the namespace was given."""

    @property
    def kubernetes(self) -> bool:
        return self.kind == "kubernetes"

    def settings(self) -> "Settings":
        """How the job's pods are to be; for commands with `pod_options`. UsageError for what can't be read."""
        assert self.pods is not None
        return self.pods(self.namespace)

    @contextmanager
    def jobs(self) -> "Iterator[Jobs]":
        """The jobs of the cluster. UsageError without a kubeconfig, or one that can't be used. What errors say to do
        works as it is typed.
        """
        from rackyard.backends.kubernetes.client import Retry, connect
        from rackyard.backends.kubernetes.jobs import Jobs
        from rackyard.errors import RackyardError

        try:
            with connect(self.kubeconfig, self.context, Retry(tries=TRIES)) as client:
                yield Jobs(client, self.namespace)
        except RackyardError as error:
            if error.fix:
                error.fix = self.typed(error.fix)
            raise

    def typed(self, text: str) -> str:
        """Text for people whose commands reach the cluster as this one did: those of rackyard bear `--target
        kubernetes` in it, and get the options that were given; those of kubectl get them, too.
        """
        config = ["--kubeconfig", self.kubeconfig] if self.kubeconfig else []
        given = [*(["--context", self.context] if self.context else []), *config]
        space = ["-n", self.namespace] if self.named else []
        # contexts are not looked for in one, nor is a namespace in another; a file of several can't be applied to one
        less = {"config": config, "apply": given, "create": given}

        def kubectl(found: re.Match[str]) -> str:
            own = found["space"].split() if found["space"] else space
            words = less.get(found["verb"], [*own, *given])
            return shlex.join(["kubectl", *words, found["verb"]])

        text = _KUBECTL.sub(kubectl, text)
        return text.replace("--target kubernetes", shlex.join(["--target", "kubernetes", *space, *given]))


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the options, and their values as its parameter `target`."""

    @functools.wraps(command)
    def called(kind: str, kubeconfig: str | None, context: str | None, namespace: str | None, **rest: Any) -> Any:
        if kind == "local":
            given = {"--kubeconfig": kubeconfig, "--context": context, "--namespace": namespace}
            if names := [name for name, value in given.items() if value]:
                from rackyard.errors import UsageError

                raise UsageError(f"{names[0]} is for Kubernetes only", fix="add --target kubernetes")
        elif namespace and not _LABEL.fullmatch(namespace):
            from rackyard.errors import UsageError

            why = "a namespace has a-z, 0-9 and - (not at the ends), at most 63 characters"
            fix = "name one that is there: kubectl get namespaces"
            raise UsageError(f"--namespace {namespace!r} can't be one", why=why, fix=fix)
        target = Target(kind, kubeconfig, context, namespace or "default", named=bool(namespace))
        return command(target=target, **rest)

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
