"""`rackyard racks` and `rackyard nodes` on a site file."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rackyard.cli.nodes import nodes
from rackyard.cli.racks import racks
from rackyard.cli.topo import topo
from rackyard.errors import SpecError, UsageError


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "site.yaml"
    path.write_text("simulate: {racks: 1, trays: 2, hgx: 1}")
    return str(path)


def test_tables_say_that_the_site_is_simulated(file: str) -> None:
    for command in (racks, nodes):
        done = CliRunner().invoke(command, ["ls", "--site", file])
        assert done.exit_code == 0
        assert done.output.startswith("site simulated (simulated)\n")
    assert "r01-t02" in done.output


def test_json(file: str) -> None:
    done = CliRunner().invoke(racks, ["ls", "--site", file, "-o", "json"])
    rows = json.loads(done.output)["racks"]
    assert [(row["name"], row["nodes"], row["nodes_free"], row["gpus"]) for row in rows] == [
        ("r01", 2, 2, 8),
        ("h01", 1, 1, 8),
    ]


def test_show(file: str) -> None:
    done = CliRunner().invoke(nodes, ["show", "r01-t01", "--site", file])
    assert "leaf-3-r01" in done.output
    done = CliRunner().invoke(racks, ["show", "r01", "--site", file, "-o", "yaml"])
    assert "simulated: true" in done.output
    assert "r01-s9" in done.output


def test_a_wrong_name_and_a_wrong_file(file: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(nodes, ["show", "r01-t1", "--site", file])
    assert isinstance(done.exception, UsageError)
    assert "did you mean" in str(done.exception)
    bad = tmp_path / "bad.yaml"
    bad.write_text("simulat: {}")
    done = CliRunner().invoke(nodes, ["ls", "--site", str(bad)])
    assert isinstance(done.exception, SpecError)
    done = CliRunner().invoke(nodes, ["ls", "--site", str(tmp_path / "none.yaml")])
    assert isinstance(done.exception, UsageError)


def test_captures_of_a_site_with_blocks(tmp_path: Path) -> None:
    done = CliRunner().invoke(topo, ["simulate", str(tmp_path), "--racks", "2", "--racks-per-block", "1"])
    assert done.exit_code == 0
    wires = (tmp_path / "ibnetdiscover.txt").read_text()
    assert "spine-2-9" in wires and "core-1" in wires
