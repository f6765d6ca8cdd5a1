"""The reader of topology files: what NCCL takes, drops and refuses, byte by byte."""

from collections.abc import Callable

import pytest

from rackyard.errors import UsageError, Where
from rackyard.nccl.version import Version
from rackyard.nccl.xmlread import LARGEST, Parsed, parse
from rackyard.nccl.xmlrefused import TopologyRefused

V = Version(2, 30, 7)
SMALL = b"""<system version="1">
  <cpu numaid="0" arch="arm64">
    <pci busid="0008:06:00.0" class="0x030200">
      <gpu dev="0" sm="100"><nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/></gpu>
    </pci>
    <nic><net name="ib0"/></nic>
  </cpu>
</system>
"""


def read(text: bytes, version: Version = V) -> Parsed:
    return parse(text, "topo.xml", version)


def refused(text: bytes, version: Version = V) -> TopologyRefused:
    with pytest.raises(TopologyRefused) as caught:
        read(text, version)
    return caught.value


def test_tree() -> None:
    parsed = read(SMALL)
    assert parsed.nodes == 7
    assert parsed.notes == ()
    assert parsed.root is not None
    gpu = parsed.root.find("gpu")
    assert gpu is not None
    assert gpu.attrs == {"dev": "0", "sm": "100"}
    assert gpu.line == 4
    link = gpu.child("nvlink")
    assert link is not None
    assert link.single
    assert [element.name for element in parsed.root.walk()] == ["system", "cpu", "pci", "gpu", "nvlink", "nic", "net"]


def test_nothing_there() -> None:
    assert read(b"").root is None
    assert read(b" \r\n ").root is None
    parsed = read(b'<topology version="1"><cpu numaid="0"/></topology>')
    assert parsed.root is None
    assert [note.rule for note in parsed.notes] == ["unknown-element"]


@pytest.mark.parametrize(
    ("text", "message", "line", "column"),
    [
        (b'<?xml version="1.0"?>\n' + SMALL, "XML Parse : expected >, got '?'", 1, 20),
        (b"\xef\xbb\xbf" + SMALL, "XML Parse error : expecting '<', got '\xef'", 1, 1),
        (SMALL.replace(b"  <cpu", b"\t<cpu"), "XML Parse error : expecting '<', got '\t'", 2, 1),
        (SMALL.replace(b" arch", b"\narch"), "XML Parse : expected >, got '\n'", 2, 18),
        (SMALL.replace(b'"0"', b"0", 1), "XML Parse : Expected (double) quote.", 2, 15),
        (SMALL.replace(b"</cpu>", b"</cpu >"), "XML Parse error : unexpected trailing   in closing tag cpu", 7, 8),
        (SMALL.replace(b"</cpu>", b""), "XML Mismatch : cpu / system", 8, 1),
        (SMALL.replace(b"</system>", b""), "XML Parse : unterminated system", 9, 1),
        (SMALL[:40], "XML Parse : Unexpected EOF", 2, 20),
        (SMALL + b"</system>", "Attribute version of node system not found", 9, 1),
        (SMALL.replace(b"<cpu", b"<!--x=1--><cpu"), "XML Parse : Unexpected value with name !--x", 2, 8),
        (SMALL.replace(b"<cpu", b"<!--"), "XML Parse error : unterminated comment", 2, 3),
        (SMALL.replace(b' version="1"', b""), "Attribute version of node system not found", 1, 1),
    ],
)
def test_refused(text: bytes, message: str, line: int, column: int) -> None:
    error = refused(text)
    assert error.nccl_message == message
    assert error.nccl_result == "ncclInternalError"
    assert error.stage == "parse"
    assert error.where == Where("topo.xml", line, column)
    assert error.fix


def test_wrong_version_is_invalid_usage() -> None:
    error = refused(SMALL.replace(b'version="1"', b'version="2"'))
    assert error.nccl_result == "ncclInvalidUsage"
    assert error.nccl_message == "XML Topology has wrong version 2, 1 needed"


@pytest.mark.parametrize("text", [b'"1"', b"'1'", b'"0x1"', b'"1.7beta"', b'" +1"'])
def test_version_is_a_c_number(text: bytes) -> None:
    assert read(b"<system version=" + text + b"/>").nodes == 1


def test_lengths() -> None:
    assert read(b'<system version="1" name="%s"/>' % (b"n" * 253)).nodes == 1
    assert refused(b'<system version="1" name="%s"/>' % (b"n" * 254)).nccl_message.startswith("Error : value nnn")
    assert read(b'<system version="1" %s="1"/>' % (b"k" * 254)).nodes == 1
    assert refused(b'<system version="1" %s="1"/>' % (b"k" * 255)).nccl_message.startswith("Error : name kkk")
    assert refused(b'<system version="1"><%s/></system>' % (b"e" * 254)).nccl_message.startswith("Error : name eee")


def test_attributes_beyond_sixteen_are_dropped() -> None:
    extra = b" ".join(b'x%d="1"' % number for number in range(20))
    parsed = read(b'<system version="1" ' + extra + b"/>")
    assert parsed.root is not None
    assert len(parsed.root.attrs) == 16
    assert {note.rule for note in parsed.notes} == {"extra-attribute"}
    assert len(parsed.notes) == 5


def test_first_of_equal_attributes_counts() -> None:
    parsed = read(b'<system version="1" version="2"/>')
    assert parsed.root is not None
    assert parsed.root.attrs == {"version": "1"}
    assert parsed.root.repeats == (("version", "2"),)


def test_skipped_elements_end_at_any_closing_tag() -> None:
    error = refused(b'<system version="1"><rack><cpu></pci></cpu></rack><cpu numaid="1"/></system>')
    assert error.nccl_message == "XML Mismatch : system / rack"
    assert refused(b"<rack>").nccl_message == "XML Parse : unterminated "
    assert refused(b"<rack><!-- c -->").nccl_message == "XML Parse : unterminated !--"


def test_closing_tags_in_skipped_elements_need_no_name() -> None:
    parsed = read(b'<system version="1"><rack><a></b></c><cpu numaid="1"/></system>')
    assert parsed.root is not None
    assert [cpu.get("numaid") for cpu in parsed.root.children] == ["1"]


def test_nul_ends_a_value() -> None:
    parsed = read(b'<system version="1" name="a\0b"/>')
    assert parsed.root is not None
    assert parsed.root.get("name") == "a"
    assert [note.rule for note in parsed.notes] == ["nul"]


@pytest.mark.parametrize("comment", [b"<!---->", b"<!-- a - b -- c -->", b"<!--/-->", b"<!-- a=b -->", b"<!--\n-->"])
def test_comments(comment: bytes) -> None:
    assert read(comment + SMALL + comment).nodes == 7


def test_node_limits_by_version() -> None:
    many = b'<system version="1">' + b'<cpu numaid="0"/>' * 254 + b"</system>"
    assert parse(many, "f", V, 4096).nodes == 255
    few = b'<system version="1">' + (b'<cpu numaid="0">' + b"<pci/>" * 25 + b"</cpu>") * 10 + b"</system>"
    assert refused(few).nccl_message == "Error : XML parser is limited to 256 nodes"
    assert read(few, Version(2, 19, 4)).nodes == 261
    children = b'<system version="1">' + b'<cpu numaid="0"/>' * 129 + b"</system>"
    assert read(children).nodes == 130
    assert refused(children, Version(2, 28, 3)).nccl_message == "Error : XML parser is limited to 128 subnodes"
    old = refused(children, Version(2, 19, 4))
    assert old.crashes
    assert old.nccl_result == ""


def test_quotes_by_version() -> None:
    text = b"<system version='1'><cpu numaid='0'/></system>"
    assert read(text).nodes == 2
    # Before 2.27 only a double quote ended a value.
    assert refused(text, Version(2, 26, 6)).nccl_message == "XML Parse : Unexpected EOF"


def test_too_large() -> None:
    with pytest.raises(UsageError):
        read(b" " * (LARGEST + 1))


def test_notes_are_bounded() -> None:
    parsed = read(b'<system version="1">' + b"<x/>" * 1000 + b"</system>")
    assert len(parsed.notes) == 200
    assert parsed.unnoted == 800


def test_fuzz(fuzz: Callable[..., None]) -> None:
    seeds = [SMALL, SMALL.replace(b"  ", b""), b"<!-- c -->" + SMALL, SMALL.replace(b'"', b"'")]
    fuzz(read, seeds)
    fuzz(lambda data: read(data, Version(2, 18, 1)), seeds, seed=2)
