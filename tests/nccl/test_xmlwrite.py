"""Writing trees, trimming them, and C numbers in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackyard.errors import UsageError
from rackyard.nccl import numbers
from rackyard.nccl.element import Element
from rackyard.nccl.version import Version
from rackyard.nccl.xmldepth import overdeep
from rackyard.nccl.xmlread import KNOWN, parse
from rackyard.nccl.xmltrim import trim
from rackyard.nccl.xmlwrite import write

V = Version(2, 30, 7)
_VALUES = st.text(st.characters(min_codepoint=1, max_codepoint=255, exclude_characters='"'), max_size=100)


@st.composite
def trees(draw: st.DrawFn, name: str = "system", depth: int = 4) -> Element:
    keys = st.sampled_from(["numaid", "busid", "name", "x", "class"])
    element = Element(name, draw(st.dictionaries(keys, _VALUES, max_size=4)))
    if name == "system":
        element.attrs = {"version": "1"}
    if depth and name in KNOWN:
        for child in draw(st.lists(st.sampled_from(sorted(KNOWN[name])), max_size=3)):
            element.children.append(draw(trees(child, depth - 1)))
    return element


def plain(element: Element) -> object:
    return [element.name, element.attrs, [plain(child) for child in element.children]]


@given(trees())
def test_written_trees_read_back(tree: Element) -> None:
    parsed = parse(write(tree).encode("latin-1"), "f", V, 4096)
    assert parsed.root is not None
    assert plain(parsed.root) == plain(tree)


@pytest.mark.parametrize(
    "element",
    [
        Element("system", {"name": 'a"b'}),
        Element("system", {"a b": "1"}),
        Element("sys tem"),
        Element("x", {"a": "v" * 254}),
    ],
)
def test_what_can_not_be_written(element: Element) -> None:
    with pytest.raises(UsageError):
        write(element)


def test_trim_keeps_branches_in_use() -> None:
    text = b"""<system version="1"><cpu numaid="0"><pci busid="a"><pci busid="b"><gpu keep="1"><nvlink/></gpu></pci>
      <pci busid="c"/></pci><nic><net name="n" keep="0"/></nic></cpu>
      <cpu numaid="1"><pci busid="d"><gpu/></pci></cpu></system>"""
    root = parse(text, "f", V).root
    assert root is not None
    trim(root)
    assert [element.get("busid") or element.name for element in root.walk()] == [
        "system",
        "cpu",
        "a",
        "b",
        "gpu",
        "nvlink",
    ]
    assert root.find("gpu", keep="1") is None


def test_trim_of_a_kept_branch_stops_there() -> None:
    root = Element("system", {}, [Element("cpu", {"keep": "1"}, [Element("pci"), Element("pci", {"keep": "1"})])])
    trim(root)
    assert len(root.children[0].children) == 2
    assert root.children[0].children[1].attrs == {"keep": "1"}


def test_depth_that_overruns_the_print() -> None:
    for bridges, fits in ((70, True), (71, False)):
        text = b'<system version="1"><cpu>' + b"<pci>" * bridges + b"<pci/>" + b"</pci>" * bridges + b"</cpu></system>"
        root = parse(text, "f", V).root
        assert root is not None
        assert (overdeep(root) is None) is fits


@pytest.mark.parametrize(
    ("text", "number"),
    [("10", 10), (" +7x", 7), ("-3", -3), ("0x1F", 31), ("010", 8), ("08", 0), ("0x", 0), ("", 0), ("a", 0), ("4.5", 4),
     ("2147483648", -2147483648), ("99999999999999999999", -1), ("\t\n5", 5), ("5\0" "6", 5)],
)  # fmt: skip
def test_c_int(text: str, number: int) -> None:
    assert numbers.c_int(text) == number


def test_wide_numbers() -> None:
    assert numbers.c_long("9" * 5000) == 2**63 - 1
    assert numbers.c_long("-" + "9" * 30) == -(2**63)
    assert numbers.c_unsigned_long("-1") == 2**64 - 1
    assert numbers.c_unsigned_long("0xdeadbeefdeadbeef", 16) == 0xDEADBEEFDEADBEEF
    assert numbers.c_unsigned_long("0xHOST", 16) == 0
    assert numbers.c_unsigned_long("9" * 40) == 2**64 - 1


@pytest.mark.parametrize(
    ("text", "number"),
    [("1.5e1x", 15.0), ("0x10", 16.0), (".5", 0.5), ("", 0.0), ("e5", 0.0), ("1e", 1.0), ("-inf", float("-inf")),
     ("1e99", float("inf"))],
)  # fmt: skip
def test_c_float(text: str, number: float) -> None:
    assert numbers.c_float(text) == number


def test_c_float_is_of_32_bits() -> None:
    assert numbers.c_float("0.1") == 0.10000000149011612


def test_versions() -> None:
    assert Version.parse("v2.30.7-1") == Version.parse("2.30.7+cuda13.0") == V
    assert Version.parse("2.31") > V
    assert str(V) == "2.30.7"
    for text in ("", "2", "2.x", "abc"):
        with pytest.raises(UsageError):
            Version.parse(text)
