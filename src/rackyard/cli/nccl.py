"""`rackyard nccl`: what NCCL would make of the hardware."""

import click

from rackyard.cli.nccl_topo import topo


@click.group("nccl", context_settings={"help_option_names": ["-h", "--help"]})
def nccl() -> None:
    """NCCL topology files: check, generate, predict. Computed here; neither NCCL nor a GPU is needed."""


nccl.add_command(topo)
