"""What a job's pods are to be like: options that say something to a cluster only."""

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from rackyard.cli.target import Target

if TYPE_CHECKING:
    from rackyard.errors import UsageError
    from rackyard.launch.volcano import Settings

_NAMES = ("image", "gpus_per_node", "host_network", "priority_class", "mount")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
_IMAGE = re.compile(r"[\[A-Za-z0-9][][A-Za-z0-9_./:@+-]*", re.ASCII)
"""Characters of an image reference; the registry has the last word."""


def pod_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the options of a job's pods, in `target.settings()`; to be put below `target_options`."""

    @functools.wraps(command)
    def called(target: Target, **given: Any) -> Any:
        mine = {name: given.pop(name) for name in _NAMES}
        if not target.kubernetes:
            _refuse_given()

        def settings(namespace: str) -> "Settings":
            from rackyard.launch.volcano import Settings

            if mine["image"] and not _IMAGE.fullmatch(mine["image"]):
                why = "the name of an image has letters, digits and _ . / : @ - in it"
                raise _usage(f"--image {mine['image']!r} is no image", why, "REGISTRY/NAME:TAG")
            rest = {name: value for name, value in mine.items() if name != "mount"}
            return Settings(namespace=namespace, mounts=_mounts(mine["mount"]), **rest)

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


def _refuse_given() -> None:
    """UsageError for one that was typed: who forgets --target would start the job on this machine."""
    context = click.get_current_context()
    typed = [name for name in _NAMES if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if typed:
        raise _usage(f"--{typed[0].replace('_', '-')} is for Kubernetes only", None, "add --target kubernetes")


def _mounts(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    found = []
    for text in texts:
        source, _, path = text.rpartition(":")
        if not source or not path.startswith("/"):
            raise _usage(f"--mount {text!r} can't be read", None, "CLAIM:/PATH, or /SOURCE:/PATH")
        if ".." in (*source.split("/"), *path.split("/")):
            raise _usage(f"--mount {text!r} is refused by Kubernetes", "a path with .. in it", "write the path out")
        if source[0] != "/" and not _SUBDOMAIN.fullmatch(source):
            why = f"{source!r} can't be the name of a claim: a-z, 0-9, - and . (not at the ends)"
            raise _usage(f"--mount {text!r} can't be read", why, "CLAIM:/PATH; the claims there are: kubectl get pvc")
        found.append((source, path))
    return tuple(found)


def _usage(what: str, why: str | None, fix: str) -> "UsageError":
    from rackyard.errors import UsageError

    return UsageError(what, why=why, fix=fix)
