"""iblinkinfo: blocks and lines tell the same, ports that are down stay told."""

from collections.abc import Callable

import pytest

from rackyard.errors import UsageError
from rackyard.fabric.facts import End, Facts
from rackyard.fabric.readers.iblinkinfo import READER, read
from rackyard.fabric.readers.reader import Capture

BLOCKS = """Switch: 0x00bb000000000001 MF0;leaf-1:MQM9700/U1:
           7    1[  ] ==( 4X          106.25 Gbps Active/  LinkUp)==>      11    1[  ] "tray-1 mlx5_0" ( )
           7    2[  ] ==( 2X          53.125 Gbps Active/  LinkUp)==>\
      12    1[  ] "MT4129 ConnectX7   Mellanox Technologies" (Could be 4X Could be 106.25 Gbps)
           7    3[  ] ==(                Down/ Polling)==>             [  ] "" ( )
           7    4[  ] ==( 4X          10.0 Gbps (FDR10) Initialize/  LinkUp)==>       0    1[  ] "core-1" ( )
           7    5[  ] ==( 4X     undefined (9)  Armed/LinkErrorRecovery)==>    "Port not available"
           7   65[  ] ==( 4X          106.25 Gbps Active/  LinkUp)==>\
      15    1[  ] "Mellanox Technologies Aggregation Node" ( )
CA: tray-1 mlx5_0:
      0x00aa000000000001     11    1[  ] ==( 4X          106.25 Gbps Active/  LinkUp)==>\
       7    1[  ] "MF0;leaf-1:MQM9700/U1" ( )
CA: MT4129 ConnectX7   Mellanox Technologies:
      0x00aa000000000002     12    1[  ] ==( 2X          53.125 Gbps Active/  LinkUp) (HOQ:15 VL_Stall:7)==>\
       7    2[  ] "MF0;leaf-1:MQM9700/U1" (Could be 4X Could be 106.25 Gbps)
"""

LINES = """\
0x00bb000000000001 "         MF0;leaf-1:MQM9700/U1"      7    1[  ] ==( 4X          106.25 Gbps Active/  LinkUp)==>\
  0x00aa000000000001     11    1[  ] "tray-1 mlx5_0" ( )
0x00bb000000000001 "         MF0;leaf-1:MQM9700/U1"      7    3[  ] ==(                Down/ Polling)==>\
             [  ] "" ( )
0x00aa000000000001 "                 tray-1 mlx5_0"     11    1[  ] ==( 4X          106.25 Gbps Active/  LinkUp)==>\
  0x00bb000000000001      7    1[  ] "MF0;leaf-1:MQM9700/U1" ( )
"""

LEAF = "00bb000000000001"


def facts_of(text: str) -> Facts:
    return read(Capture("links.txt", text.encode()))


def test_far_ends_are_found_by_their_lid() -> None:
    facts = facts_of(BLOCKS)
    assert [(s.name, s.guid, s.lid, s.model) for s in facts.switches] == [("leaf-1", LEAF, 7, "MQM9700")]
    assert [cable.b for cable in facts.cables] == [
        End("hca", "tray-1", "mlx5_0", 1, "00aa000000000001"),
        End("hca", "", "", 1, "00aa000000000002"),
        None,
        End("switch", "core-1", "", 1, ""),
        None,
        End("other", "", "", 1, ""),
        End("switch", "leaf-1", "", 1, LEAF),
        End("switch", "leaf-1", "", 2, LEAF),
    ]
    assert facts.cables[6].a == facts.cables[0].b
    assert facts.cables[2].source.line == 4


def test_what_runs_and_what_could() -> None:
    rows = [
        (c.width, c.speed, c.gbps, c.width_max, c.speed_max, c.state, c.phys_state) for c in facts_of(BLOCKS).cables[:5]
    ]
    assert rows == [
        (4, "NDR", 400.0, 4, "NDR", "Active", "LinkUp"),
        (2, "HDR", 100.0, 4, "NDR", "Active", "LinkUp"),
        (None, None, None, None, None, "Down", "Polling"),
        (4, "FDR10", 40.0, 4, "FDR10", "Init", "LinkUp"),
        (4, None, None, 4, None, "Armed", "LinkErrorRecovery"),
    ]


def test_lines_tell_the_same() -> None:
    facts = facts_of(LINES)
    assert [s.name for s in facts.switches] == ["leaf-1"]
    assert [(c.a, c.b) for c in facts.cables] == [
        (End("switch", "leaf-1", "", 1, LEAF), End("hca", "tray-1", "mlx5_0", 1, "00aa000000000001")),
        (End("switch", "leaf-1", "", 3, LEAF), None),
        (End("hca", "tray-1", "mlx5_0", 1, "00aa000000000001"), End("switch", "leaf-1", "", 1, LEAF)),
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (BLOCKS + "what\n", 12),
        (BLOCKS[: BLOCKS.index("Mellanox")], 3),
        (LINES.replace("==>  0x00bb", "==  0x00bb"), 3),
        (LINES.replace('"" ( )', '"x'), 2),
        (BLOCKS.split("\n", 1)[1], 1),
        (BLOCKS.replace("0x00aa000000000001 ", ""), 9),
        ("", None),
    ],
)
def test_damage_is_told_with_its_line(text: str, line: int | None) -> None:
    with pytest.raises(UsageError) as error:
        facts_of(text)
    assert str(error.value.where) == ("links.txt" if line is None else f"links.txt:{line}")


def test_what_the_tool_complained_of_is_told() -> None:
    facts = facts_of("ibwarn: [812] mad_rpc: timeout\n# a remark\n" + BLOCKS)
    assert facts.findings[0].rule == "fabric/scan-incomplete" and len(facts.cables) == 8


def test_it_knows_its_own() -> None:
    assert READER.knows(BLOCKS, "x") and READER.knows(LINES, "x")
    assert not READER.knows('Switch\t8 "Switch1"\n[1]\t"Hca1"[1]\n', "x")


def test_fuzz(fuzz: Callable[..., None]) -> None:
    fuzz(lambda data: read(Capture("fuzz", data)), [BLOCKS.encode(), LINES.encode()])
