"""Nodes from a site."""

from pathlib import Path

import pytest

from rackyard.errors import UsageError
from rackyard.fabric.labelkeys import shipped
from rackyard.fabric.labels import labels_of
from rackyard.fabric.simulate import simulate
from testbed import nodes


def test_a_tray_has_its_gpus_cores_and_our_labels() -> None:
    site = simulate(racks=1, trays=2)
    first, second = nodes.manifests(site, nodes.KWOK)
    assert first["status"]["allocatable"] == {
        "nvidia.com/gpu": "4",
        "cpu": "144",
        "memory": "960Gi",
        "pods": "110",
    }
    ours = labels_of(site, shipped().written())
    assert ours["r01-t01"].items() <= first["metadata"]["labels"].items()
    assert first["metadata"]["labels"]["kubernetes.io/arch"] == "arm64"
    assert first["metadata"]["annotations"] == nodes.KWOK
    assert second["metadata"]["name"] == second["metadata"]["labels"]["kubernetes.io/hostname"] == "r01-t02"


def test_a_server_has_eight_gpus() -> None:
    (server,) = nodes.manifests(simulate(racks=0, hgx=1), {})
    assert server["status"]["capacity"]["nvidia.com/gpu"] == "8"
    assert server["metadata"]["labels"]["kubernetes.io/arch"] == "amd64"


def test_a_site_comes_from_a_file_or_from_numbers(tmp_path: Path) -> None:
    assert nodes.site(None, 0) is None
    found = nodes.site(None, 2, 3)
    assert found is not None
    assert len(found.nodes) == 6
    with pytest.raises(UsageError, match="both"):
        nodes.site(tmp_path / "site.yaml", 2)
