"""nvidia-smi topo -m."""

from pathlib import Path

import pytest
from tests.conftest import Fuzz

from rackyard.fabric.readers import smi_topo
from rackyard.fabric.readers.reader import Capture, head_of

TRAY = """\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV18\tNV18\tNV18\tSYS\tSYS\t0-71\t0,2-17\t\t2
GPU1\tNV18\t X \tNV18\tNV18\tSYS\tSYS\t0-71\t0,2-17\t\t10
GPU2\tNV18\tNV18\t X \tNV18\tSYS\tSYS\t72-143\t1,18-33\t\t18
GPU3\tNV18\tNV18\tNV18\t X \tSYS\tSYS\t72-143\t1,18-33\t\t26
NIC0\tSYS\tSYS\tSYS\tSYS\t X \tSYS\t\t\t\t
NIC1\tSYS\tSYS\tSYS\tSYS\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_bond_0
"""
PAIR = """      GPU0  GPU1  CPU Affinity  NUMA Affinity
GPU0   X    NV4   0-23          0-1
GPU1  NV4    X    N/A           N/A
"""


def rows(text: str, node: str = "n") -> list[tuple[object, ...]]:
    gpus = smi_topo.read(Capture("topo.txt", text.encode(), node)).gpus
    return [(gpu.node, gpu.index, gpu.links, gpu.cpus, gpu.numa) for gpu in gpus]


def test_a_grace_tray() -> None:
    assert smi_topo.READER.knows(TRAY, "")
    assert rows(TRAY) == [
        ("n", 0, 18, "0-71", 0),
        ("n", 1, 18, "0-71", 0),
        ("n", 2, 18, "72-143", 1),
        ("n", 3, 18, "72-143", 1),
    ]
    facts = smi_topo.read(Capture("topo.txt", TRAY.encode(), "n"))
    assert [(nic.name, nic.numa, nic.source.line) for nic in facts.nics] == [
        ("mlx5_0", None, 16),
        ("mlx5_bond_0", None, 17),
    ]
    assert facts.gpus[3].source.line == 5


def test_colours_prompts_fences_and_spaces_do_not_matter() -> None:
    spaced = TRAY.replace("\t", "    ")
    coloured = TRAY.replace("GPU0\tGPU1", "\x1b[4mGPU0\tGPU1").replace("GPU NUMA ID", "GPU NUMA ID\x1b[0m", 1)
    for text in (spaced, coloured, f"```bash\nroot@t1:~# nvidia-smi topo -m\n{TRAY}```\n", f"\r\n{TRAY}"):
        assert rows(text) == rows(TRAY)


def test_a_gpu_without_links_among_its_peers() -> None:
    broken = TRAY.replace("GPU3\tNV18\tNV18\tNV18", "GPU3\tSYS\tSYS\tSYS")
    assert [row[2] for row in rows(broken)] == [18, 18, 18, 0]


def test_fewer_links_to_a_pair_show_on_the_gpu_that_lost_them() -> None:
    weak = TRAY.replace("GPU3\tNV18\tNV18\tNV18", "GPU3\tNV16\tNV16\tNV16")
    assert [row[2] for row in rows(weak)] == [18, 18, 18, 16]


def test_a_mesh_without_switches_leaves_the_count_open() -> None:
    mesh = (
        "\tGPU0\tGPU1\tGPU2\tCPU Affinity\nGPU0\t X \tNV4\tNV4\t0-7\nGPU1\tNV4\t X \tNV4\t0-7\nGPU2\tNV4\tNV4\t X \t0-7"
    )
    assert [row[2] for row in rows(mesh)] == [None, None, None]


def test_a_pair_and_an_affinity_that_spans_nodes() -> None:
    assert rows(PAIR) == [("n", 0, 4, "0-23", None), ("n", 1, 4, None, None)]


def test_a_cut_table_gives_what_is_whole() -> None:
    cut = TRAY[: TRAY.index("GPU3\tNV18") + 12]
    assert [row[1:3] for row in rows(cut)] == [(0, 18), (1, 18), (2, 18), (3, None)]


def test_a_second_table_is_another_host_and_the_same_one_is_not() -> None:
    assert [row[0] for row in rows(TRAY + PAIR)] == ["n"] * 4 + ["n#2"] * 2
    assert len(rows(TRAY + TRAY)) == 4


def test_old_drivers_head_rows_with_the_names_of_hcas() -> None:
    text = "\tGPU0\tmlx5_0\tCPU Affinity\nGPU0\t X \tPIX\t0-7\nmlx5_0\tPIX\t X \t\n"
    facts = smi_topo.read(Capture("t", text.encode(), "n"))
    assert ([nic.name for nic in facts.nics], facts.gpus[0].cpus) == (["mlx5_0"], "0-7")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "GPU0 is fine\n",
        " \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n",
        "GPU 0: NVIDIA (UUID: GPU-0)\n",
        "\tGPU0\tGPU1\n",
    ],
)
def test_other_outputs_are_not_taken(text: str) -> None:
    assert not smi_topo.READER.knows(text, "")


def test_a_peer_to_peer_table_counts_no_links() -> None:
    assert [row[2] for row in rows(" \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n")] == [None]


def test_fuzz(fuzz: Fuzz) -> None:
    fuzz(lambda data: smi_topo.read(Capture("f", data, "n")), [TRAY.encode(), PAIR.encode()])


@pytest.mark.corpus
def test_a_real_gb200_tray(corpus: Path) -> None:
    capture = Capture("gb200", (corpus / "topology/topo_m/gb200_full.txt").read_bytes(), "gb200")
    assert smi_topo.READER.knows(head_of(capture), "")
    facts = smi_topo.read(capture)
    assert [(gpu.links, gpu.cpus, gpu.numa) for gpu in facts.gpus] == [(18, "0-71", 0)] * 2 + [(18, "72-143", 1)] * 2
    assert [nic.name for nic in facts.nics] == [f"mlx5_{number}" for number in range(8)]


@pytest.mark.corpus
def test_two_servers_in_one_document(corpus: Path) -> None:
    text = (corpus / "topology/topo_m/a100_h100_ml-engineering.md").read_text()
    found = rows(text, "doc")
    assert [row[2] for row in found] == [12] * 8 + [18] * 8
    assert found[0] == ("doc", 0, 12, "0-23", 0)
    assert found[15] == ("doc#2", 7, 18, "52-103", 1)
