"""From the files that a command was given to a site: captures of any kind, folders of them, or a site file."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rackyard.cli.inputs import STDIN, counted, read_at_most

if TYPE_CHECKING:
    from rackyard.fabric import Site
    from rackyard.fabric.discover import Discovered
    from rackyard.fabric.readers.reader import Capture, Reader

_SITE_KEYS = {"simulate", "simulated", "provenance", "shapes", "racks"}
"""Top-level keys of a site file that no other kind of YAML here has."""


def readers() -> "Sequence[Reader]":
    """Every reader there is, the pickiest first."""
    from rackyard.fabric.readers import READERS
    from rackyard.nccl.readers import READERS as NCCL_READERS

    return (*NCCL_READERS, *READERS)


def captures(paths: Iterable[Path]) -> "Iterator[Capture]":
    """The files and those in the folders, by name; `-` is standard input. UsageError for what can't be read, for a
    folder with nothing in it, and for a site file: it is no capture of anything.
    """
    from rackyard.errors import UsageError

    for path in paths:
        if path.is_dir():
            yield from _folder(path)
            continue
        capture = _capture(path, path)
        if _is_site_yaml(capture):
            raise UsageError(
                "a site file among captures",
                where=str(path),
                why="it says what a site is, and captures say what was seen",
                fix="give it alone, or compare the two: rackyard topo diff SITE CAPTURES…",
            )
        yield capture


def _folder(path: Path) -> "Iterator[Capture]":
    from rackyard.errors import UsageError
    from rackyard.fabric.readers.reader import Capture

    if is_sysfs(path):
        from rackyard.collect import walk
        from rackyard.fabric.readers.sysfs_tree import flat_tree

        tree = walk(path)
        files_in = ((name, text.encode()) for name, text in tree.files.items())
        yield Capture(str(path), flat_tree(files_in, tree.links), path.absolute().name)
        return
    empty = True
    for file in sorted(_files(path)):
        empty = False
        yield _capture(file, path)
    if empty:
        raise UsageError("there is no capture in this folder", where=str(path), fix="see: rackyard topo collect --help")


def _files(folder: Path) -> Iterator[Path]:
    """The plain files below a folder. A pipe or a socket would be waited on for ever."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(Path(entry.path))
            elif entry.is_file():
                yield Path(entry.path)


def _capture(file: Path, given: Path) -> "Capture":
    from rackyard.errors import UsageError
    from rackyard.fabric.readers.reader import MAX_BYTES, Capture

    if str(file) != STDIN and not file.exists():
        raise UsageError("there is no such file", where=str(file), fix="give captures, folders of captures, or -")
    name = "" if str(file) == STDIN else node_by_name(file, given)
    # One byte more than is read: whoever reads it then says that it is too large.
    return Capture(str(file), read_at_most(file, MAX_BYTES + 1), name)


def is_sysfs(path: Path) -> bool:
    """Whether a folder is the root of a sysfs tree, or of a machine's file system."""
    return any((path / part).is_dir() for part in ("bus/pci", "class/infiniband", "sys/bus/pci", "sys/class"))


def node_by_name(file: Path, given: Path) -> str:
    """The host of a capture that does not name it: the folder it lies in, else what stands before the first dot.

    A folder `captures/r01-t01/nvidia-smi.txt` names the host; in `captures/r01-t01.txt` the file does.
    """
    if given != file and file.parent != given:
        return file.parent.name
    name = file.name.split(".", 1)[0]
    return file.stem if name.isdecimal() else name  # 10.0.0.7.txt is of an address, not of a host called 10


def discovered(given: "Sequence[Path] | Sequence[Capture]", name: str) -> "Discovered":
    """The site that captures show. Without any, this host is looked at."""
    from rackyard.fabric.discover import discover
    from rackyard.fabric.readers.reader import Capture

    if not given:
        from rackyard.collect import look
        from rackyard.fabric.discover import merge

        return merge(look(), name)
    seen = (one for item in given for one in ([item] if isinstance(item, Capture) else captures([item])))
    return discover(seen, readers(), name)


def found_in(paths: Sequence[Path], name: str = "site") -> "Discovered":
    """A site file said again as facts, or what the captures show. Without any paths, this host is looked at."""
    if len(paths) != 1 or paths[0].is_dir():
        return discovered(paths, name)
    capture = _capture(paths[0], paths[0])
    site = site_in(capture)
    if site is None:
        return discovered([capture], name)
    from rackyard.fabric.discover import restated

    return restated(site)


def site_of_file(path: Path) -> "Site":
    """The site of an option that wants one: a site file, or captures. What was odd in captures is told on stderr."""
    from rackyard.fabric.discover import restated

    capture = None if path.is_dir() else _capture(path, path)
    if capture is not None and path.suffix in (".yaml", ".yml") and not _is_known(capture):
        # Nothing else was meant, so that a misspelt key is told with its line.
        found = restated(_load(capture))
    else:
        found = found_in([path], path.stem)
    remark(found)
    return found.site


def site_in(capture: "Capture") -> "Site | None":
    """The site that a file describes by itself (YAML or JSON of ours); None for captures. SpecError where broken."""
    from rackyard.fabric.readers import site_json
    from rackyard.fabric.readers.reader import head_of

    if site_json.READER.knows(head_of(capture), capture.file):
        return site_json.load(capture.data, capture.file)
    return _load(capture) if _is_site_yaml(capture) else None


def _load(capture: "Capture") -> "Site":
    from rackyard.errors import SpecError, Where
    from rackyard.fabric import load

    try:
        text = capture.data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = capture.data.count(b"\n", 0, error.start) + 1
        raise SpecError(
            "the site file is not UTF-8", where=Where(capture.file, line), why=f"byte 0x{capture.data[error.start]:02x}"
        ) from None
    return load(text, capture.file)


def _is_site_yaml(capture: "Capture") -> bool:
    from rackyard.fabric.readers.reader import head_of

    head = head_of(capture)
    keys = {line.split(":", 1)[0].strip("'\" ") for line in head.splitlines() if line[:1].isalpha() and ":" in line}
    return bool(keys & _SITE_KEYS or {"name", "nodes"} <= keys) and not _is_known(capture)


def _is_known(capture: "Capture") -> bool:
    from rackyard.fabric.readers.reader import head_of

    head = head_of(capture)
    return any(reader.knows(head, capture.file) for reader in readers())


def remark(found: "Discovered", *, told: bool = False) -> None:
    """Say on stderr what the answer of a command rests on: a made-up site, unless that is `told` by the answer, and
    captures that contradict each other or could not be read.
    """
    from rackyard.cli.common import hint
    from rackyard.cli.findings import noteworthy

    if found.site.simulated and not told:
        hint(f"note: site {found.site.name} is simulated")
    odd = noteworthy(found.findings)
    if odd:
        names = ", ".join(sorted({one.rule for one in odd}))
        hint(f"warning: {counted(len(odd), 'finding')} in what was read ({names}): see `rackyard topo discover`")
