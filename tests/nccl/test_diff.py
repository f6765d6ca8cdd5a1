"""Differences of two topology trees."""

from rackyard.nccl.diff import Difference, diff
from rackyard.nccl.element import Element
from rackyard.nccl.version import Version
from rackyard.nccl.xmlread import parse

ONE = b"""<system version="1">
  <cpu numaid="0" host_hash="0x1">
    <pci busid="a" class="0x03"><gpu dev="0"><nvlink target="s" count="18"/></gpu></pci>
    <pci busid="b" class="0x02"><nic><net name="n" guid="0x1"/></nic></pci>
  </cpu>
</system>"""


def tree(text: bytes) -> Element:
    root = parse(text, "f", Version(2, 30, 7)).root
    assert root is not None
    return root


def test_order_and_volatile_values_do_not_count() -> None:
    other = b"""<system version="1"><cpu host_hash="0x2" numaid="0">
    <pci busid="b" class="0x02"><nic><net name="n" guid="0x2"/></nic></pci>
    <pci busid="a" class="0x03"><gpu dev="0"><nvlink target="s" count="18"/></gpu></pci></cpu></system>"""
    assert diff(tree(ONE), tree(other)) == ()
    assert {each.attribute for each in diff(tree(ONE), tree(other), volatile=True)} == {"host_hash", "guid"}


def test_values_and_devices() -> None:
    other = tree(ONE.replace(b'count="18"', b'count="17"').replace(b'<pci busid="b"', b'<pci busid="c"'))
    assert diff(tree(ONE), other) == (
        Difference("cpu 0/pci a/gpu/nvlink s", "count", "18", "17", 3, 3),
        Difference("cpu 0/pci b", "", "2 elements below", None, 4, 0),
        Difference("cpu 0/pci c", "", None, "2 elements below", 0, 4),
    )


def test_hosts_are_told_apart() -> None:
    cpu = ONE[ONE.index(b"  <cpu") : ONE.index(b"</system>")]
    two = ONE.replace(b"</system>", cpu.replace(b"0x1", b"0x2", 1) + b"</system>")
    assert diff(tree(two), tree(two)) == ()
    dark = two[::-1].replace(b'81"=tnuoc', b'0"=tnuoc', 1)[::-1]
    assert [(each.path, each.after) for each in diff(tree(two), tree(dark))] == [
        ("host 1 cpu 0/pci a/gpu/nvlink s", "0"),
    ]
