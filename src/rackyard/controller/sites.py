"""Which site a state folder stands for."""

from pathlib import Path

from rackyard.controller.reading import Reader
from rackyard.errors import UsageError
from rackyard.fabric import Site, load, simulate

SITE_SETTING = "site"


def stored_site(store: Reader) -> Site:
    """The site of a state folder; two simulated racks where none was ever set."""
    stored = store.setting(SITE_SETTING)
    return simulate(racks=2) if stored is None else load(stored, "the stored site")


def read_site(file: Path) -> Site:
    """The site that a file describes. UsageError when it can't be read, SpecError when it is no site."""
    fix = "give the path of a site YAML file"
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError("the site file does not exist", where=str(file), fix=fix) from None
    except IsADirectoryError:
        fix = f"{fix}; from captures: rackyard topo discover {file} --out site.yaml"
        raise UsageError("a site file is wanted here", where=str(file), why="it is a folder", fix=fix) from None
    except UnicodeDecodeError as error:
        why = f"it is not UTF-8: byte 0x{error.object[error.start]:02x} at {error.start}"
        raise UsageError("the site file can't be read", where=str(file), why=why, fix=fix) from None
    except OSError as error:
        why = error.strerror or str(error)
        fix = "let it be read by this user, or give another site YAML file"
        raise UsageError("the site file can't be read", where=str(file), why=why, fix=fix) from None
    return load(text, str(file))
