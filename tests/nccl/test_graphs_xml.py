"""Graph files: what is read, what is refused, and that what is written is read back."""

import pytest

from rackyard.errors import RackyardError, UsageError
from rackyard.nccl.element import Element
from rackyard.nccl.graphs import Graph, net_name
from rackyard.nccl.graphxml import read_graphs, resolve, write_graphs
from rackyard.nccl.linktypes import PATH_C2C, PATH_LOC, PATH_NVL, PATH_PIX
from rackyard.nccl.paths_compute import compute, sized
from rackyard.nccl.search_graphs import search_graphs
from rackyard.nccl.topology import System
from rackyard.nccl.version import Version
from rackyard.nccl.xmlread import parse
from rackyard.nccl.xmlrefused import TopologyRefused

VERSION = Version(2, 30, 7)
FILE = """<graphs version="1">
  <graph id="0" pattern="4" crossnic="0" nchannels="1" speedintra="45.1" speedinter="12" latencyinter="2.5" \
typeintra="NVL" typeinter="PXN" samechannels="1">
    <channel>
      <net dev="0x100000000000001"/>
      <gpu dev="0x1" rank="1"/>
      <gpu dev="0"/>
      <net dev="0"/>
    </channel>
  </graph>
</graphs>
"""


def two_gpus(*, nic: bool = False) -> Element:
    text = '<system version="1"><cpu host_hash="0x1" numaid="0" affinity="f" arch="arm64">'
    for dev in range(2):
        text += (
            f'<pci busid="000{dev}:02:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">'
            f'<gpu dev="{dev}" sm="90" rank="{dev}" gdr="1"><nvlink target="s" count="18" tclass="0x068000"/></gpu>'
            "</pci>"
        )
    if nic:
        text += (
            '<pci busid="0004:03:00.0" class="0x020000" link_speed="32.0 GT/s PCIe" link_width="16">'
            '<nic><net name="a" dev="0" speed="100000" port="1" guid="0x1" gdr="1"/></nic></pci>'
        )
    root = parse((text + "</cpu></system>").encode(), "made", VERSION).root
    assert root is not None
    return root


@pytest.fixture
def system() -> System:
    return sized(compute(two_gpus(), VERSION)).system


def test_a_graph_file_is_read() -> None:
    (graph,) = read_graphs(FILE.encode(), "g.xml", VERSION)
    assert (graph.id, graph.pattern, graph.n_channels, graph.same_channels) == (0, 4, 1, 1)
    assert (round(graph.bw_intra, 4), graph.bw_inter, graph.latency_inter) == (45.1, 12.0, 2.5)
    assert [(gpu.dev, gpu.rank) for gpu in graph.channels[0].gpus] == [(1, 1), (0, None)]
    assert [net_name(net) for net in graph.channels[0].nets] == ["NET/1-1", "NET/0-0"]
    assert (graph.line, graph.channels[0].line) == (2, 3)


@pytest.mark.parametrize(
    ("name", "kind"), [("C2C", PATH_LOC), ("WHAT", PATH_LOC), ("PIX", PATH_PIX), ("NVLX", PATH_NVL)]
)
def test_a_type_without_a_name_is_taken_for_loc(name: str, kind: int) -> None:
    (graph,) = read_graphs(FILE.replace('"NVL"', f'"{name}"').encode(), "g.xml", VERSION)
    assert graph.type_intra == kind


@pytest.mark.parametrize(
    ("before", "after", "line", "result"),
    [
        ('version="1"', 'version="2"', 1, "ncclInvalidUsage"),
        ('version="1"', "", 1, "ncclInternalError"),
        ('speedintra="45.1" ', "", 2, "ncclInternalError"),
        ('<gpu dev="0"/>', "<gpu/>", 6, "ncclInternalError"),
        ("</channel>", "</chanel>", 8, "ncclInternalError"),
    ],
)
def test_what_nccl_refuses_is_refused_with_its_line(before: str, after: str, line: int, result: str) -> None:
    with pytest.raises(TopologyRefused) as refused:
        read_graphs(FILE.replace(before, after, 1).encode(), "g.xml", VERSION)
    assert refused.value.nccl_result == result
    assert f"g.xml:{line}" in str(refused.value.where)


def test_unknown_elements_are_skipped_with_all_they_contain() -> None:
    text = FILE.replace("    <channel>", '    <note><channel><gpu dev="7"/></channel></note>\n    <channel>')
    (graph,) = read_graphs(text.encode(), "g.xml", VERSION)
    assert len(graph.channels) == 1


def test_a_file_without_graphs_is_no_graph_file() -> None:
    with pytest.raises(UsageError, match="no graphs element"):
        read_graphs(b'<system version="1"/>', "g.xml", VERSION)


def test_written_graphs_are_read_back(system: System) -> None:
    graphs = search_graphs(system).found
    text = write_graphs(graphs.values(), system)
    back = [resolve(graph, system, "g.xml") for graph in read_graphs(text.encode(), "g.xml", VERSION)]
    assert [graph.id for graph in back] == [0, 1, 4, 2, 3]
    for graph in back:
        ours = graphs.get(graph.name)
        assert graph.channels == (ours.channels if ours else ())
        assert ours is None or (graph.bw_intra, graph.type_inter) == (ours.bw_intra, ours.type_inter)


def test_nets_are_written_around_the_gpus() -> None:
    system = sized(compute(two_gpus(nic=True), VERSION), 2).system
    ring = search_graphs(system).found["ring"]
    text = write_graphs([ring], system)
    back = resolve(read_graphs(text.encode(), "g.xml", VERSION)[0], system, "g.xml")
    assert back.channels == ring.channels
    assert back.channels[0].nets == (0, 0)


def test_before_2_30_ranks_are_found_by_device() -> None:
    old = Version(2, 29, 7)
    system = sized(compute(two_gpus(), old)).system
    graphs = search_graphs(system).found
    text = write_graphs(graphs.values(), system)
    assert "rank=" not in text
    assert resolve(read_graphs(text.encode(), "g.xml", old)[0], system, "g.xml").channels == graphs["ring"].channels


def test_channels_that_do_not_fit_the_system_are_refused(system: System) -> None:
    (graph,) = read_graphs(FILE.replace('<gpu dev="0"/>\n', "").encode(), "g.xml", VERSION)
    with pytest.raises(UsageError, match="does not fit"):
        resolve(graph, system, "g.xml")
    (graph,) = read_graphs(FILE.replace('nchannels="1"', 'nchannels="2"').encode(), "g.xml", VERSION)
    with pytest.raises(UsageError, match="says 2 channels"):
        resolve(graph, system, "g.xml")
    (graph,) = read_graphs(FILE.replace('dev="0"/>\n      <net', 'dev="0x9"/>\n      <net').encode(), "g.xml", VERSION)
    with pytest.raises(TopologyRefused, match="ncclSystemError"):
        resolve(graph, system, "g.xml")


def test_a_c2c_graph_can_not_be_dumped(system: System) -> None:
    graph = Graph(1, 4, 0, 1, 1, 0, 1, 1.0, 1.0, 0.0, PATH_C2C, PATH_PIX, 0, ())
    with pytest.raises(TopologyRefused, match="dictionary"):
        write_graphs([graph], system)


def test_damaged_graph_files(fuzz: object, system: System) -> None:
    def read(data: bytes) -> object:
        return [resolve(graph, system, "g.xml") for graph in read_graphs(data, "g.xml", VERSION)]

    assert callable(fuzz)
    fuzz(read, [FILE.encode(), write_graphs(search_graphs(system).found.values(), system)[:3000].encode()])


def test_errors_are_for_users() -> None:
    with pytest.raises(RackyardError) as error:
        read_graphs(b"<?xml?>" + FILE.encode(), "g.xml", VERSION)
    assert "g.xml" in str(error.value)
