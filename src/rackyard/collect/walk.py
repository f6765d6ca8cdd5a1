"""Reads a sysfs tree at any root into memory, for `sysfs_tree.facts_of`: only what a reader uses, each cut at a limit.

Symbolic links are followed inside the root only: a copied tree must not read the host it was copied to.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rackyard.errors import UsageError
from rackyard.fabric.readers.sysfs_tree import CPUINFO, HCA_FILES, PCI_FILES, PORT_FILES, wanted

MAX_FILE = 64 * 1024
"""Bytes read of one file. sysfs gives at most a page; /proc/cpuinfo says all that is used in its first processor."""

MAX_FILES = 200_000
MAX_DEPTH = 40


@dataclass(slots=True)
class Tree:
    """Texts by path below the root, and where the links of class and bus folders lead."""

    root: str
    files: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)


def walk(root: Path, *, proc: Path | None = None) -> Tree:
    """The tree under `root`: a sysfs, or a copy of some folder of one. `proc` is the /proc that belongs to it.

    UsageError when there is no such folder, or more than MAX_FILES files are in it.
    """
    top = Path(os.path.realpath(root))
    if not top.is_dir():
        raise UsageError(f"there is no folder {root}", fix="name the root of a sysfs tree, such as /sys")
    tree = Tree(str(root))
    paths = _known(top, tree) if (top / "class").is_dir() or (top / "bus").is_dir() else _all(top)
    for path in paths:
        text = _text(path)
        if text is not None:
            tree.files[os.path.relpath(path, top)] = text
            if len(tree.files) > MAX_FILES:
                raise UsageError(
                    f"{root} holds more than {MAX_FILES} files of a sysfs", fix="name the root of one host's sysfs"
                )
    if proc is not None and (text := _text(proc / "cpuinfo")) is not None:
        tree.files[CPUINFO] = text
    return tree


def _known(top: Path, tree: Tree) -> Iterator[Path]:
    """The files that are used, found through the folders that list devices."""
    for _, place in _listed(top, "bus/pci/devices", tree):
        yield from (place / name for name in PCI_FILES)
    for name, place in _listed(top, "class/infiniband", tree):
        device = Path(os.path.realpath(place / "device"))
        if device.is_relative_to(top):
            tree.links[f"class/infiniband/{name}"] = os.path.relpath(device, top)
        yield from (place / file for file in HCA_FILES)
        for port in _entries(place / "ports"):
            yield from (place / "ports" / port / file for file in PORT_FILES)
    for _, place in _listed(top, "class/net", tree):
        yield place / "dev_port"
    nodes = top / "devices" / "system" / "node"
    yield from (nodes / name / "cpulist" for name in _entries(nodes) if name.startswith("node"))


def _listed(top: Path, folder: str, tree: Tree) -> Iterator[tuple[str, Path]]:
    """The devices that a folder lists, each with its real place. Those that lead out of the tree are left out."""
    for name in _entries(top / folder):
        place = Path(os.path.realpath(top / folder / name))
        if place.is_dir() and place.is_relative_to(top):
            if (top / folder / name).is_symlink():
                tree.links[f"{folder}/{name}"] = os.path.relpath(place, top)
            yield name, place


def _all(top: Path) -> Iterator[Path]:
    """Every file that is used under a folder of unknown shape; links are not followed."""
    for folder, folders, files in os.walk(top, followlinks=False):
        inside = os.path.relpath(folder, top)
        if inside.count("/") >= MAX_DEPTH:
            folders.clear()
        for name in files:
            if wanted(os.path.normpath(f"{inside}/{name}")) and not os.path.islink(f"{folder}/{name}"):
                yield Path(folder, name)


def _entries(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _text(path: Path) -> str | None:
    """The file's text; None where there is none, or the kernel refuses to say."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            return file.read(MAX_FILE).decode("utf-8", "replace")
    except OSError:
        return None
