"""What both loops say together: trouble that lasts is told once, and where site and cluster differ."""

import msgspec
import pytest

from rackyard.controller.kube.differs import differs
from rackyard.controller.kube.objects import GPU, Node
from rackyard.controller.kube.once import QUIET, REMIND, Once
from rackyard.fabric import load, simulate


class Told:
    """Lines with the second at which they were told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.lines: list[tuple[float, str]] = []
        self.once = Once(lambda _subject, _word, line: self.lines.append((self.now, line)), lambda: self.now)

    def at(self, now: float, *lines: str, word: str = "Trouble") -> None:
        self.now = now
        for line in lines:
            self.once("", word, line)


def test_trouble_is_told_again_after_a_while_or_when_it_was_over() -> None:
    told = Told()
    for second in range(0, int(REMIND) + 1, 10):
        told.at(second, "pods: 403", "nodes: 403")
    assert told.lines == [(0, "pods: 403"), (0, "nodes: 403"), (REMIND, "pods: 403"), (REMIND, "nodes: 403")]
    told.at(REMIND + 5, "pods: 500")
    assert told.lines[4:] == [(REMIND + 5, "pods: 500")]
    told.at(REMIND + 5 + QUIET, "pods: 403")
    assert told.lines[5:] == [(REMIND + 5 + QUIET, "pods: 403")]


def test_what_is_no_trouble_is_told_each_time() -> None:
    told = Told()
    told.at(0, "a gang", "a gang", word="Placed")
    assert len(told.lines) == 2


def nodes(*names: str, gpus: int = 4) -> dict[str, Node]:
    status = {"allocatable": {GPU: str(gpus)}}
    return {name: msgspec.convert({"metadata": {"name": name}, "status": status}, Node) for name in names}


def test_an_empty_site_is_called_empty() -> None:
    told = differs(load("name: empty\n", "site.yaml"), nodes("a", "b", "c", "d") | nodes("control", gpus=0))
    assert told.startswith("site empty is empty, and nothing will be placed; 5 nodes of the cluster not in it, ")
    assert "4 with GPUs: a, b, c, ...;" in told and "--site" in told
    assert "0 nodes of the cluster" in differs(load("name: empty\n", "site.yaml"), {})


@pytest.mark.parametrize(
    ("there", "told"),
    [
        (nodes("r01-t01", "r01-t02"), ""),
        (nodes("r01-t01", "r01-t02") | nodes("control", gpus=0), ""),
        (nodes("r01-t01"), "1 of its 2 nodes are not in the cluster: r01-t02"),
        (
            nodes("r01-t01", "r01-t02", "x"),
            "not in it: 1 node of the cluster with GPUs, which get no gang: x",
        ),
        (
            nodes("r01-t02", "e", "d", "c", "b"),
            "1 of its 2 nodes are not in the cluster: r01-t01; "
            "not in it: 4 nodes of the cluster with GPUs, which get no gang: b, c, d, ...",
        ),
    ],
)
def test_nodes_that_only_one_of_both_has_are_named(there: dict[str, Node], told: str) -> None:
    site = simulate(1, 2)
    assert differs(site, there) == (told and f"site {site.name}: {told}")
