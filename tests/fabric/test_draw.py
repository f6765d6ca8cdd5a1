"""Sites drawn in text: readable at 80 columns, every fault visible, nothing that was not said called healthy."""

from dataclasses import replace

import pytest

from rackyard.fabric import Health, Site, draw, simulate


def hurt() -> Site:
    site = simulate(racks=8, hgx=4)
    site = site.with_health(nodes={"r02-t05": Health.DOWN}, nvlink={"r03": Health.DOWN}).with_cordon({"r01-t02": "fan"})
    leaves = tuple(replace(leaf, uplinks=14) if leaf.name == "leaf-2-r04" else leaf for leaf in site.leaves)
    return replace(site, leaves=tuple(leaf for leaf in leaves if leaf.name != "leaf-1-r06"))


def row(lines: list[str], start: str) -> str:
    return next(line for line in lines if line.strip().startswith(start))


@pytest.mark.parametrize("marks", [draw.SIGNS, draw.ASCII])
def test_it_fits_80_columns(marks: draw.Marks) -> None:
    site = hurt()
    for lines in (draw.racks(site, marks), draw.rails(site, marks), draw.rack(site, "r02", marks)):
        assert max(map(len, lines)) <= 80
    if marks is draw.ASCII:
        assert "".join(draw.racks(site, marks)).isascii()


def test_every_fault_shows() -> None:
    lines = draw.racks(hurt(), draw.ASCII)
    first = lines[: lines.index("")]
    assert row(first, "5 ").split()[1:5] == ["oooo", "oooo", "x", "oooo"]  # r02-t05 is down
    assert row(first, "2 ").split()[1:3] == ["oooo", "c"]  # r01-t02 is cordoned
    assert row(first, "NVLink").split()[1:4] == ["healthy", "healthy", "down"]
    assert "none" in row(lines[len(first) + 1 :], "NVLink")  # servers are domains of their own
    rails = draw.rails(hurt(), draw.ASCII)
    assert "18^14!" in row(rails, "r04")
    assert row(rails, "r06").split()[1:4] == ["18^18", ".", "18^18"]


def test_a_rack_in_full() -> None:
    site = simulate(racks=2)
    node = site.nodes[3]
    nics = (replace(node.nics[0], leaf="leaf-0-r02"), replace(node.nics[1], health=Health.DOWN), *node.nics[2:])
    gpus = (replace(node.gpus[0], nvlinks=0, health=Health.DOWN), *node.gpus[1:])
    site = replace(site, nodes=tuple(replace(n, nics=nics, gpus=gpus) if n is node else n for n in site.nodes))
    line = row(draw.rack(site, "r01", draw.ASCII), "4 ")
    assert line.split() == ["4", "r01-t04", "xooo", "0/18", "o", "leaf-0-r02", "x", "o", "o"]


def test_what_nobody_said_is_a_question_mark() -> None:
    site = simulate(racks=1, trays=1)
    bare = replace(site.nodes[0], gpus=(), nics=(), slot=-1, health=Health.UNKNOWN)
    lines = draw.racks(replace(site, nodes=(bare,)), draw.ASCII)
    assert row(lines, "1 ").split() == ["1", "?"]
    assert draw.rails(replace(site, leaves=(), nodes=(bare,)), draw.ASCII)[0] == "rack"
