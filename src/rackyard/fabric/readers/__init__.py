"""Readers: text or bytes in, facts out. Every one knows its own kind of capture when it sees one."""

from rackyard.fabric.readers.registry import READERS

__all__ = ["READERS"]
