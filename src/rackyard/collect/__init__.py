"""What a host says of itself: the script that gathers it into a tarball, and the same read in place."""

from rackyard.collect.live import look, run_script, script
from rackyard.collect.nvml import read_nvml
from rackyard.collect.walk import Tree, walk

__all__ = ["Tree", "look", "read_nvml", "run_script", "script", "walk"]
