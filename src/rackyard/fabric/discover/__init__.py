"""From facts to a site."""

from rackyard.fabric.discover.fromsite import restated
from rackyard.fabric.discover.merge import Discovered, merge
from rackyard.fabric.discover.run import discover

__all__ = ["Discovered", "discover", "merge", "restated"]
