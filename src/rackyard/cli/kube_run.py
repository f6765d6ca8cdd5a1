"""`rackyard kube run`: the controller of a cluster's gangs and nodes."""

import signal
import threading
from pathlib import Path
from typing import Any

import click


@click.command("run")
@click.option("--site", type=click.Path(path_type=Path), required=True, help="Site file; its nodes are the cluster's.")
@click.option(
    "--mode", type=click.Choice(["act", "observe"]), default="act", show_default=True,
    help="observe: say what would be done, write nothing; runs beside others.",
)  # fmt: skip
@click.option(
    "--health/--no-health", default=True, show_default=True, help="Cordon faulty nodes, uncordon healed ones."
)
@click.option("--lost-after", type=click.FloatRange(0), default=10.0, show_default=True,
              help="Seconds after which a node that is not Ready is taken for lost.")  # fmt: skip
@click.option("--heal-after", type=click.FloatRange(0), default=60.0, show_default=True,
              help="Seconds that a node must be well before it is used again.")  # fmt: skip
@click.option("--share", type=click.FloatRange(0, 1), default=0.2, show_default=True,
              help="Of the site's nodes that may be out of use through us.")  # fmt: skip
@click.option("--lease/--no-lease", default=True, show_default=True, help="Take turns with others; observe never does.")
@click.option("--lease-namespace", default="rackyard-system", show_default=True)
@click.option("--kubeconfig", help="Default: KUBECONFIG, ~/.kube/config, or the pod's service account.")
@click.option("--context", help="Default: the current one.")
def run(site: Path, mode: str, lease: bool, lease_namespace: str, kubeconfig: str | None, context: str | None,
        **health: Any) -> None:  # fmt: skip
    """Place gangs of gated pods, and take them off faulty nodes, until stopped. See docs/kubernetes.md."""
    from rackyard.backends.kubernetes.client import connect
    from rackyard.backends.kubernetes.election import Timing
    from rackyard.backends.kubernetes.lease import Place, connect_for
    from rackyard.controller.kube.duty import Duty
    from rackyard.controller.kube.health import Options
    from rackyard.controller.sites import read_site

    def tell(subject: str, word: str, line: str) -> None:
        click.echo(f"{subject or 'cluster'}: {word}: {line}")

    judged = health.pop("health")
    options = Options(mode="act" if mode == "act" else "observe", **health) if judged else None
    place = read_site(site)
    with connect(kubeconfig, context) as client:
        duty = Duty(client, place, tell, mode == "act", options)
        for number in (signal.SIGTERM, signal.SIGINT):
            # in a thread: a handler runs inside whatever the main thread holds
            signal.signal(number, lambda *_: threading.Thread(target=duty.stop).start())
        if not lease or mode == "observe":  # who only looks asks for no turn, and keeps nobody from theirs
            duty.run()
            return
        with connect_for(Timing(), kubeconfig, context) as own:
            duty.run_in_turns(own, Place(lease_namespace, "rackyard-controller"))
