"""ibnetdiscover: every line accounted for, names told apart, damage told with its line."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rackyard.errors import UsageError
from rackyard.fabric.facts import End, Facts
from rackyard.fabric.readers.ibnetdiscover import READER, read
from rackyard.fabric.readers.reader import Capture, head_of

FABRIC = """\
#
# Topology file: generated on Mon Jan  5 10:00:00 2026
#
# Initiated from node 00aa000000000001 port 00aa000000000001

vendid=0x2c9
devid=0xd2f2
sysimgguid=0xbb000000000001
switchguid=0xbb000000000001(bb000000000001)
Switch\t65 "S-00bb000000000001"\t\t# "MF0;leaf-1:MQM9700/U1" enhanced port 0 lid 7 lmc 0
[1]\t"H-00aa000000000001"[1](aa000000000001) \t\t# "tray-1 mlx5_0" lid 11 4xNDR
[2]\t"H-00aa000000000002"[2](aa000000000012) \t\t# "'tray-2' mlx5_4" lid 12 2xXDR s=0 w=16 v=4
[3]\t"H-00aa000000000003"[1](aa000000000003) \t\t# "MT4129 ConnectX7   Mellanox Technologies" lid 13 ??EDR
[4]\t"H-00aa000000000004"[1](aa000000000004) \t\t# "localhost HCA-5" lid 14 4x???
[33]\t"S-00bb000000000002"[1]\t\t# "core #1 "A"" lid 8 4xHDR
[65]\t"H-00bb000000000009"[1](bb000000000009) \t\t# "Mellanox Technologies Aggregation Node" lid 15 4xNDR
[64]\t"R-00cc000000000001"[1](cc000000000001) \t\t# "gate" lid 16 12xFDR10

vendid=0x8f1
devid=0x5a5a
switchguid=0xbb000000000002(bb000000000002)
Switch\t36 "S-00bb000000000002"\t\t# "core #1 "A"" base port 0 lid 8 lmc 0
[1]\t"S-00bb000000000001"[33]\t\t# "MF0;leaf-1:MQM9700/U1" lid 7 4xHDR

vendid=0x2c9
devid=0x1021
sysimgguid=0xaa000000000001
caguid=0xaa000000000001
Ca\t1 "H-00aa000000000001"\t\t# "tray-1 mlx5_0"
[1](aa000000000001) \t"S-00bb000000000001"[1]\t\t# lid 11 lmc 0 "MF0;leaf-1:MQM9700/U1" lid 7 4xNDR
"""

BLOCKS = "".join(
    f'\n{type_}guid=0x{guid}\n{header}\t2 "{id_}"\t\t# "{name}"\n'
    f'[{port}]({guid}) \t"S-00bb000000000001"[{far}]\t\t# lid 1 lmc 0 "MF0;leaf-1:MQM9700/U1" lid 7 4xNDR\n'
    for type_, header, id_, guid, name, port, far in (
        ("ca", "Ca", "H-00aa000000000002", "aa000000000012", "'tray-2' mlx5_4", 2, 2),
        ("ca", "Ca", "H-00aa000000000003", "aa000000000003", "MT4129 ConnectX7   Mellanox Technologies", 1, 3),
        ("ca", "Ca", "H-00aa000000000004", "aa000000000004", "localhost HCA-5", 1, 4),
        ("ca", "Ca", "H-00bb000000000009", "bb000000000009", "Mellanox Technologies Aggregation Node", 1, 65),
        ("rt", "Rt", "R-00cc000000000001", "cc000000000001", "gate", 1, 64),
    )
)

TOY = """\
# no GUIDs, no descriptions
Switch\t8 "Switch1"
[1]\t"Hca1"[1]
[2]\t"Switch2"[3]\tw=12  # a remark

Switch 8 "Switch2"
[3] "Switch1" [2]
Hca\t2 "Hca1"
[1]\t"Switch1"[1]
"""


def facts_of(text: str) -> Facts:
    return read(Capture("fabric.txt", text.encode()))


def test_both_ends_of_each_link_are_told() -> None:
    facts = facts_of(FABRIC + BLOCKS)
    assert facts.findings == []
    assert [(s.name, s.model, s.guid, s.ports, s.lid) for s in facts.switches] == [
        ("leaf-1", "MQM9700", "00bb000000000001", 65, 7),
        ('core #1 "A"', None, "00bb000000000002", 36, 8),
    ]
    assert len(facts.cables) == 14
    first, leaf = facts.cables[0], End("switch", "leaf-1", "", 1, "00bb000000000001")
    assert first.a == leaf
    assert first.b == End("hca", "tray-1", "mlx5_0", 1, "00aa000000000001")
    assert (first.source.line, first.source.text) == (11, FABRIC.split("\n")[10])
    back = next(cable for cable in facts.cables if cable.a.owner == "tray-1")
    assert (back.a, back.b) == (first.b, leaf)


def test_names_of_nobody_stay_empty() -> None:
    ends = [cable.b for cable in facts_of(FABRIC + BLOCKS).cables[:7]]
    assert [(e.kind, e.owner, e.device, e.port, e.guid) for e in ends if e] == [
        ("hca", "tray-1", "mlx5_0", 1, "00aa000000000001"),
        ("hca", "tray-2", "mlx5_4", 2, "00aa000000000012"),
        ("hca", "", "", 1, "00aa000000000003"),
        ("hca", "", "HCA-5", 1, "00aa000000000004"),
        ("switch", 'core #1 "A"', "", 1, "00bb000000000002"),
        ("other", "", "", 1, "00bb000000000009"),
        ("other", "gate", "", 1, "00cc000000000001"),
    ]


def test_rates() -> None:
    assert [(c.width, c.speed, c.gbps) for c in facts_of(FABRIC + BLOCKS).cables[:7]] == [
        (4, "NDR", 400.0),
        (2, "XDR", 400.0),
        (None, "EDR", None),
        (4, None, None),
        (4, "HDR", 200.0),
        (4, "NDR", 400.0),
        (12, "FDR10", 120.0),
    ]


def test_ibsim_ids_are_names() -> None:
    facts = facts_of(TOY)
    assert [s.name for s in facts.switches] == ["Switch1", "Switch2"]
    assert [(c.a.owner, c.a.port, c.b and (c.b.kind, c.b.owner, c.b.port)) for c in facts.cables] == [
        ("Switch1", 1, ("hca", "Hca1", 1)),
        ("Switch1", 2, ("switch", "Switch2", 3)),
        ("Switch2", 3, ("switch", "Switch1", 2)),
        ("Hca1", 1, ("switch", "Switch1", 1)),
    ]
    assert [c.width for c in facts.cables] == [None, 12, None, None]


def test_chips_of_one_chassis_keep_apart() -> None:
    text = FABRIC.replace("leaf-1:MQM9700/U1", "core:CS7500/L01/U1").replace('core #1 "A"', "MF0;core:CS7500/S02/U1")
    assert [s.name for s in facts_of(text + BLOCKS).switches] == ["core/L01/U1", "core/S02/U1"]


def test_switches_of_one_name_stay_apart() -> None:
    text = (FABRIC + BLOCKS).replace('core #1 "A"', "MF0;leaf-1:MQM9700/U1")
    facts = facts_of(text)
    assert [s.name for s in facts.switches] == ["leaf-1/U1-00bb000000000001", "leaf-1/U1-00bb000000000002"]
    assert {c.a.owner for c in facts.cables if c.a.kind == "switch"} == {s.name for s in facts.switches}


def test_two_switches_with_one_guid_are_told() -> None:
    text = (FABRIC + BLOCKS).replace("bb000000000002", "bb000000000001")
    facts = facts_of(text)
    assert [(s.name, s.guid) for s in facts.switches] == [
        ("leaf-1", "00bb000000000001"),
        ('core #1 "A"', "00bb000000000001"),
    ]
    link = next(c for c in facts.cables if c.a.port == 33)
    assert link.b is not None and (link.a.owner, link.b.owner) == ("leaf-1", 'core #1 "A"')
    (finding,) = facts.findings
    assert finding.rule == "fabric/block-twice" and len(finding.evidence) == 2 and "leaf-1" in finding.summary


def test_two_runs_in_one_file_are_told() -> None:
    facts = facts_of(FABRIC + BLOCKS + "\n" + FABRIC + BLOCKS)
    assert len(facts.switches) == 2
    (finding,) = facts.findings
    assert finding.rule == "fabric/block-twice" and "and 4 more" in finding.summary


def test_grouping_by_chassis_is_read() -> None:
    text = FABRIC.replace("\nvendid=0x2c9\n", "\nChassis 1 (guid 0xbb)\n\n# Spine Nodes\nvendid=0x2c9\n", 1)
    text = text.replace('[33]\t"S-00bb000000000002"[1]\t', '[33][ext 5]\t"S-00bb000000000002"[1][ext 6]\t')
    assert len(facts_of(text + "\nNon-Chassis Nodes\n" + BLOCKS).cables) == 14


def test_a_cut_capture_is_told() -> None:
    finding = facts_of(FABRIC).findings[0]
    assert finding.rule == "fabric/capture-cut" and "5 nodes" in finding.summary
    named = "tray-2 mlx5_4, GUID 00aa000000000003, GUID 00aa000000000004, GUID 00bb000000000009 and 1 more"
    assert finding.summary.endswith(named)
    bare = facts_of(FABRIC + BLOCKS + '\nCa\t1 "H-00aa000000000005"\t\t# "tray-5 mlx5_0"\n').findings[0]
    assert bare.evidence[0].text.startswith("Ca")


def test_what_the_tool_complained_of_is_told() -> None:
    noise = "ibwarn: [812] mad_rpc: timeout\nsrc/query_smp.c:240; mad (DR path slid 0) bad status 110; timed out\n"
    finding = facts_of(noise + FABRIC + BLOCKS).findings[0]
    assert finding.rule == "fabric/scan-incomplete" and len(finding.evidence) == 2


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (FABRIC + "what is this\n", 31),
        (FABRIC[: FABRIC.index(" lid 13")], 13),
        (FABRIC[: FABRIC.index('_0" lid 11')], 11),
        (FABRIC.replace("[33]", "[x]", 1), 15),
        (FABRIC.replace("[33]", " [33]", 1), 15),
        ('[1]\t"Hca1"[1]\n', 1),
        ('Ca\t1 "H-00aa000000000001"\t\t# "tray-1 mlx5_0"\n', 1),
        ("# only a remark\n", None),
    ],
)
def test_damage_is_told_with_its_line(text: str, line: int | None) -> None:
    with pytest.raises(UsageError) as error:
        facts_of(text)
    assert str(error.value.where) == ("fabric.txt" if line is None else f"fabric.txt:{line}")


def test_it_knows_its_own() -> None:
    assert READER.knows(FABRIC[:4096], "x") and READER.knows(TOY, "x")
    assert not READER.knows("Switch: 0x00bb000000000001 MF0;leaf-1:MQM9700/U1:\n", "x")
    assert not READER.knows("SwitchName=leaf1 Nodes=n[1-4]\n", "topology.conf")


def test_long_blanks_do_not_hang() -> None:
    for line in ('[1]\t"Hca1"[1]' + " \t" * 500_000 + "x", "Switch" + " " * 1_000_000 + "x", "[1]" + '"' * 1_000_000):
        with pytest.raises(UsageError):
            facts_of(TOY + line)


def test_fuzz(fuzz: Callable[..., None]) -> None:
    fuzz(lambda data: read(Capture("fuzz", data)), [(FABRIC + BLOCKS).encode(), TOY.encode()])


@pytest.mark.corpus
def test_the_eight_rack_fabric_is_read_to_the_line(corpus: Path) -> None:
    path = corpus / "topology" / "ibnetdiscover" / "topograph-example.out"
    text = path.read_text()
    capture = Capture(path.name, path.read_bytes())
    assert READER.knows(head_of(capture), path.name)
    facts = read(capture)
    lines = text.split("\n")
    assert [c.source.line for c in facts.cables] == [n for n, line in enumerate(lines, 1) if line.startswith("[")]
    assert len(facts.switches) == len(re.findall(r"^Switch", text, re.M)) == 40
    ends = {(c.a.kind, c.a.guid): c.a for c in facts.cables}
    kinds = [kind for kind, _ in ends]
    assert (kinds.count("hca"), kinds.count("other")) == (542, 40)
    assert sum(1 for end in ends.values() if end.kind == "hca" and not end.device) == text.count("ConnectX7") / 2
    assert {c.gbps for c in facts.cables} == {400.0}
    # Both ends tell the same story: each link is there twice, once from each side.
    told = {(c.a, c.b) for c in facts.cables}
    assert told == {(b, a) for a, b in told} and len(told) == len(facts.cables)
    assert facts.findings == []


@pytest.mark.corpus
def test_every_toy_is_read_and_the_broken_capture_refused(corpus: Path) -> None:
    folder = corpus / "topology" / "ibnetdiscover"
    for path in sorted(folder.glob("ibsim-*")):
        facts = read(Capture(path.name, path.read_bytes()))
        told = {(c.a.owner, c.a.port, c.b.owner, c.b.port) for c in facts.cables if c.b}
        assert told == {(c, d, a, b) for a, b, c, d in told} and facts.findings == []
    with pytest.raises(UsageError) as error:
        read(Capture("bad.out", (folder / "topograph-example-bad.out").read_bytes()))
    assert str(error.value.where) == "bad.out:10"
