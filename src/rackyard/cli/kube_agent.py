"""`rackyard kube agent`: what is wrong with this host, as conditions, labels and metrics."""

import signal
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rackyard.cli.common import emit, output_option, print_table
from rackyard.units import parse_duration

if TYPE_CHECKING:
    from rackyard.agent.derive import View
    from rackyard.agent.listener import Listener
    from rackyard.agent.loop import Agent
    from rackyard.agent.metrics import Metrics
    from rackyard.agent.writing import Writer
    from rackyard.errors import RackyardError


class _Span(click.ParamType[float]):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            seconds = parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if seconds <= 0:
            self.fail("it must be over 0", param, ctx)
        return seconds


@click.command("agent")
@click.option("--node", required=True, envvar="NODE_NAME", help="This node's name in the cluster (or NODE_NAME).")
@click.option(
    "--mode",
    type=click.Choice(["observe", "act"]),
    default="observe",
    show_default=True,
    help="observe shows and serves; act also writes conditions and labels to this node.",
)
@click.option("--once", is_flag=True, help="One round, shown as -o says; conditions that are True exit with 4.")
@click.option("--every", type=_Span(), default="30s", show_default=True, help="From round to round.")
@click.option("--timeout", type=_Span(), default="20s", show_default=True, help="For each reader.")
@click.option(
    "--metrics", "listen", metavar="[ADDRESS:]PORT", help="Serve /metrics and /healthz; default address: loopback."
)
@click.option(
    "--metrics-token-file",
    "token",
    type=click.Path(path_type=Path),
    help="Bearer token that /metrics asks for; needed on any address but loopback.",
)
@click.option(
    "--root",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default="/",
    show_default=True,
    help="Where the host's /sys and /proc are.",
)
@click.option("--kubeconfig", help="Default: KUBECONFIG, ~/.kube/config, or the pod's service account.")
@click.option("--context", help="Default: the current one.")
@output_option
def agent(
    node: str,
    mode: str,
    once: bool,
    every: float,
    timeout: float,
    listen: str | None,
    token: Path | None,
    root: Path,
    kubeconfig: str | None,
    context: str | None,
    output: str,
) -> None:
    """Look at this host again and again, and say what is wrong with it. See docs/kubernetes.md.

    Conditions: rackyard.io/NVLinkDown, GPUFault, FabricDegraded, NICDown; Unknown where a reader could not tell.
    """
    from rackyard.agent.loop import Agent
    from rackyard.agent.readers import Readers

    with ExitStack() as held:
        readers = Readers(node, root, timeout)
        held.callback(readers.close)
        writer = _writer(held, node, kubeconfig, context) if mode == "act" else None
        if once:
            _once(Agent(readers, every, writer), output)
            return
        metrics = _metrics() if listen else None
        found = Agent(readers, every, writer, metrics, click.echo)
        if listen and metrics:
            held.callback(_listener(listen, token, metrics, found).close)
        # SIGTERM ends it after the round under way. Conditions stay: a planned reboot is no fault, and heals none.
        signal.signal(signal.SIGTERM, lambda *_: found.stop())
        with suppress(KeyboardInterrupt):
            found.run()


def _once(found: "Agent", output: str) -> None:
    view: View = found.once()
    emit(output, _plain(view), lambda: _show(view))
    if found.failed:
        raise _unwritten(view.node, found.failed)
    if any(one.status == "True" for one in view.conditions):
        raise SystemExit(4)


def _unwritten(node: str, errors: "Sequence[RackyardError]") -> "RackyardError":
    """All that went wrong as one: the same refusal most often meets conditions and labels."""
    from rackyard.errors import RackyardError

    def told(parts: Iterable[object]) -> str | None:
        return "; ".join(dict.fromkeys(str(part) for part in parts if part)) or None

    return RackyardError(
        f"node {node} was not written: {told(each.what for each in errors)}",
        where=told(each.where for each in errors),
        why=told(each.why for each in errors),
        fix=told(each.fix for each in errors),
    )


def _plain(view: "View") -> dict[str, Any]:
    return {
        "node": view.node,
        "conditions": [
            {"type": one.type, "status": one.status, "reason": one.reason, "message": one.message}
            for one in view.conditions
        ],
        "labels": dict(view.labels),
        "readers": [
            {"reader": one.reader, "trouble": str(one.trouble) if one.trouble else None, "line": one.line}
            for one in view.readings
        ],
        "gpus": dict(view.gpus),
        "nics": dict(view.nics),
        "nvlinks": dict(view.nvlinks),
    }


def _show(view: "View") -> None:
    rows = [(one.type.partition("/")[2], one.status, one.reason, one.message) for one in view.conditions]
    print_table(["condition", "status", "reason", "message"], rows)
    if view.labels:
        click.echo("")
        print_table(["label", "value"], sorted(view.labels.items()))


def _writer(held: ExitStack, node: str, kubeconfig: str | None, context: str | None) -> "Writer":
    from rackyard.backends.kubernetes.client import Retry, connect

    client = held.enter_context(connect(kubeconfig, context, Retry(tries=2)))
    client.http.timeout = 10  # the next round tries again
    from rackyard.agent.writing import Writer

    return Writer(client, node)


def _metrics() -> "Metrics":
    from rackyard.errors import UsageError

    try:
        from rackyard.agent.metrics import Metrics
    except ModuleNotFoundError as error:
        raise UsageError(f"the agent needs {error.name}", fix="pip install 'rackyard[kubernetes]'") from None
    return Metrics()


def _listener(listen: str, token: Path | None, metrics: "Metrics", found: "Agent") -> "Listener":
    from rackyard.agent.listener import Listener, address

    listener = Listener(address(listen, token), metrics.registry, found.alive)
    click.echo(f"metrics on port {listener.port}")
    return listener
