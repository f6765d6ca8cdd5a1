"""`rackyard kube`: gangs on a Kubernetes cluster."""

from pathlib import Path

import click


@click.group("kube", context_settings={"help_option_names": ["-h", "--help"]})
def kube() -> None:
    """Place gangs of gated pods on a cluster and release them to its own scheduler."""


@kube.command("run")
@click.option("--site", type=click.Path(path_type=Path), required=True, help="Site file; its nodes are the cluster's.")
@click.option("--kubeconfig", help="Default: KUBECONFIG, ~/.kube/config, or the pod's service account.")
@click.option("--context", help="Default: the current one.")
def run(site: Path, kubeconfig: str | None, context: str | None) -> None:
    """Watch the cluster and place gangs until stopped. See docs/kubernetes.md."""
    from rackyard.backends.kubernetes.client import connect
    from rackyard.controller.kube.loop import KubeController
    from rackyard.controller.sites import read_site

    def tell(gang: str, word: str, line: str) -> None:
        click.echo(f"{gang or 'cluster'}: {word}: {line}")

    with connect(kubeconfig, context) as client:
        controller = KubeController(client, read_site(site), tell)
        try:
            controller.run()
        except KeyboardInterrupt:
            controller.stop()
