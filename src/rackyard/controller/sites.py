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
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(
            "the site file does not exist", where=str(file), fix="give the path of a site YAML file"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise UsageError("the site file can't be read", where=str(file), why=reason) from None
    return load(text, str(file))
