"""`rackyard kube`: gangs on a Kubernetes cluster."""

import click

from rackyard.cli.kube_agent import agent
from rackyard.cli.kube_run import run
from rackyard.cli.kube_topology import topology


@click.group("kube", context_settings={"help_option_names": ["-h", "--help"]})
def kube() -> None:
    """Place gangs of gated pods on a cluster and release them to its own scheduler."""


kube.add_command(run)
kube.add_command(agent)
kube.add_command(topology)
