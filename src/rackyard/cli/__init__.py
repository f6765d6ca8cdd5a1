"""The command line. Each noun is a thin file, imported when it is called: `--help` stays fast."""

from rackyard.cli.app import main

__all__ = ["main"]
