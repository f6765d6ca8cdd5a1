"""The readers of what NCCL writes, for `topo discover`."""

from rackyard.nccl import dumpread, logread

READERS = (dumpread.READER, logread.READER)
