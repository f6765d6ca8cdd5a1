"""The tarball of `rackyard topo collect`, and any tar of captures: unpacked in memory into Captures, never onto a disk.

POSIX ustar with the GNU and pax long names, plain or gzipped. The standard library's tarfile takes 0.3 ms for a bundle,
which is the whole budget of a node at 10,000 of them; the format is 512-byte blocks, and this reads just those. Names
that lead out of the folder, hard links, devices and anything that unpacks to far more than it weighs are refused.
"""

import re
import zlib
from collections.abc import Iterator

from rackyard.errors import SpecError, UsageError
from rackyard.fabric.readers.reader import MAX_BYTES, Capture
from rackyard.fabric.readers.sysfs_tree import flat_tree, is_tree

MAX_MEMBERS = 200_000
"""Files in one tar. A walked sysfs tree of a big server is 20,000."""

MAX_RATIO = 100
"""How many times its size a gzip may unpack to, beyond FREE_BYTES. A sysfs tree of tiny files reaches 50."""

FREE_BYTES = 64 * 1024

META = "meta"
META_FIRST = "rackyard-collect 1"

_BLOCK = 512
_OWN_NAME = re.compile(r"rackyard-(.+)-\d{8}T\d{6}Z$")
_SUFFIXES = re.compile(r"\.(?:tar\.gz|tgz|tar)$", re.I)
_KINDS = {b"1": "a hard link", b"2": "a symbolic link", b"3": "a device", b"4": "a device", b"6": "a pipe"}


def is_bundle(data: bytes) -> bool:
    """Whether this is a tar, or a gzip of anything."""
    return data[:2] == b"\x1f\x8b" or data[257:262] == b"ustar"


def unpack(bundle: Capture) -> list[Capture]:
    """The files in it, each with its node: from the `meta` file beside or above it, else from its folder or the name of
    the tar. Bundles inside a bundle are unpacked too, one level deep; a gzip that is no tar is one file.

    A tree of sysfs files comes as one capture. UsageError for what is no sound tar, SpecError for a refused member.
    """
    captures = _unpacked(bundle)
    if not any(is_bundle(capture.data) for capture in captures):
        return captures
    found: list[Capture] = []
    room = MAX_BYTES
    for capture in captures:
        inner = [capture]
        if is_bundle(capture.data):
            inner = _unpacked(Capture(capture.file, capture.data))
            if any(is_bundle(one.data) for one in inner):
                raise _refused(bundle.file, capture.file, "it is an archive within an archive within an archive")
        found += inner
        room -= sum(len(one.data) for one in inner)
        if room < 0:
            raise _refused(bundle.file, capture.file, f"the archives in it hold more than {MAX_BYTES} bytes")
    return found


def _unpacked(bundle: Capture) -> list[Capture]:
    data = _tar(bundle)
    if data is not bundle.data and data[257:262] != b"ustar":
        return [Capture(bundle.file.removesuffix(".gz"), data, bundle.node)]
    members: list[tuple[str, bytes]] = []
    links: dict[str, str] = {}
    for name, kind, content in _members(bundle.file, data, data is bundle.data):
        if kind == b"2":
            links[name] = content.decode("utf-8", "replace")
        else:
            members.append((name, content))
        if len(members) + len(links) > MAX_MEMBERS:
            raise _refused(bundle.file, name, f"the archive has more than {MAX_MEMBERS} files")
    if is_tree(name for name, _ in members):
        return [Capture(bundle.file, flat_tree(members, links), bundle.node or _node_of(bundle.file))]
    if links:
        raise _refused(bundle.file, next(iter(links)), "it is a symbolic link")
    return _captures(bundle, members)


def _captures(bundle: Capture, members: list[tuple[str, bytes]]) -> list[Capture]:
    nodes: dict[str, str] = {}
    for name, content in members:
        folder, _, last = name.rpartition("/")
        if last == META and (node := _node_in(content)):
            nodes[folder] = node
    own = bundle.node or _node_of(bundle.file)
    captures = []
    for name, content in members:
        folder, _, last = name.rpartition("/")
        if last != META:
            node = _above(folder, nodes) if nodes else folder.rpartition("/")[2]
            captures.append(Capture(f"{bundle.file}/{name}", content, node or own))
    return captures


def _above(folder: str, nodes: dict[str, str]) -> str:
    """The node of the nearest folder that has one; empty when none has."""
    while folder not in nodes and folder:
        folder = folder.rpartition("/")[0]
    return nodes.get(folder, "")


def _node_in(meta: bytes) -> str:
    """The host that a `meta` file is of; empty when it is not one of ours."""
    lines = meta[:4096].decode("utf-8", "replace").split("\n")
    if lines[0].strip() != META_FIRST:
        return ""
    return next((line[5:].strip() for line in lines if line.startswith("host=")), "")


def _node_of(file: str) -> str:
    """The host by the name of its tarball: `rackyard-<host>-<UTC time>.tar.gz`, or the name without its ending."""
    stem = _SUFFIXES.sub("", file.rpartition("/")[2])
    match = _OWN_NAME.match(stem)
    return match[1] if match else stem


def _tar(bundle: Capture) -> bytes:
    """The plain tar. Its size is bounded before it is unpacked."""
    data = bundle.data
    if data[:2] != b"\x1f\x8b":
        return data
    most = min(MAX_BYTES, max(FREE_BYTES, MAX_RATIO * len(data)))
    machine = zlib.decompressobj(31)
    try:
        plain = machine.decompress(data, most)
    except zlib.error as error:
        raise UsageError(f"{bundle.file} is no sound gzip", where=bundle.file, why=str(error), fix=_AGAIN) from None
    if not machine.eof:
        if machine.unconsumed_tail or len(plain) >= most:
            why = f"it unpacks to more than {most} bytes, {most // max(len(data), 1)} times its size"
            raise UsageError(f"{bundle.file} is refused", where=bundle.file, why=why, fix="unpack it by hand and look")
        raise UsageError(f"{bundle.file} is cut short", where=bundle.file, why="the gzip has no end", fix=_AGAIN)
    return plain


_AGAIN = "copy the file again, or collect the node again"


def _members(file: str, data: bytes, check: bool) -> Iterator[tuple[str, bytes, bytes]]:
    """Name, type and content of each file (for a symbolic link, its target). `check` sums up the headers, which the CRC
    of a gzip has made needless.
    """
    at, size_of_all = 0, len(data)
    long_name = long_target = ""
    while at + _BLOCK <= size_of_all:
        head = data[at : at + _BLOCK]
        if head[0] == 0 and not head.strip(b"\0"):
            return
        kind = head[156:157]
        size = _size(file, head, at, check)
        start, at = at + _BLOCK, at + _BLOCK + (size + _BLOCK - 1) // _BLOCK * _BLOCK
        if start + size > size_of_all:
            raise UsageError(
                f"{file} is cut short", where=file, why="the last file in the tar is not whole", fix=_AGAIN
            )
        if kind in b"LKxg" and kind:
            content = data[start : start + size]
            if kind == b"L":
                long_name = _text(content)
            elif kind == b"K":
                long_target = _text(content)
            elif kind == b"x":
                long_name, long_target = _pax(content, "path", long_name), _pax(content, "linkpath", long_target)
            continue
        name = _safe(file, long_name or _name(head))
        target = long_target or _text(head[157:257])
        long_name = long_target = ""
        if kind in (b"0", b"\0", b"7"):
            yield name, b"0", data[start : start + size]
        elif kind == b"2":
            yield name, kind, target.encode()
        elif kind != b"5":
            raise _refused(file, name, f"it is {_KINDS.get(kind, 'of a kind that holds no plain file')}")
    if at < size_of_all and data[at:].strip(b"\0"):
        raise UsageError(f"{file} is cut short", where=file, why="half a header is left at the end", fix=_AGAIN)


def _size(file: str, head: bytes, at: int, check: bool) -> int:
    """The size in the header at byte `at`, after its magic and (with `check`) its sum were found right."""
    try:
        told = int(head[148:156].strip(b"\0 ") or b"0", 8) if check else 0
        size = int(head[124:136].strip(b"\0 ") or b"0", 8)
    except ValueError:
        told = size = -1
    right = not check or told == sum(head) - sum(head[148:156]) + 8 * 32
    if head[257:262] != b"ustar" or size < 0 or not right:
        raise UsageError(
            f"{file} is no sound tar", where=file, why=f"the header at byte {at} does not add up", fix=_AGAIN
        )
    return size


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "replace")


def _name(head: bytes) -> str:
    name = _text(head[:100])
    if head[257:263] == b"ustar\0" and head[345]:
        return f"{_text(head[345:500])}/{name}"
    return name


def _pax(content: bytes, key: str, before: str) -> str:
    """The value of one record (`27 path=some/name\\n`), or what was known before."""
    match = re.search(rb"^\d+ " + key.encode() + rb"=([^\n]*)$", content, re.M)
    return match[1].decode("utf-8", "replace") if match else before


def _safe(file: str, name: str) -> str:
    """The name without `./`; refused when it leads out of the folder."""
    if name.startswith("./"):
        name = name[2:]
    if name.startswith("/") or ".." in name.split("/"):
        raise _refused(file, name, "its name leads out of the folder")
    return name.rstrip("/")


def _refused(file: str, name: str, why: str) -> SpecError:
    return SpecError(
        f"{name[:200]!r} in {file} is refused", where=file, why=why, fix="make the tar of plain files and folders only"
    )
