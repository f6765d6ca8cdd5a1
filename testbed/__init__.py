"""A real Kubernetes control plane on this machine, for tests and benchmarks: see testbed/README.md."""

from testbed.cluster import Cluster, cluster
from testbed.families import FAMILIES, Family
from testbed.options import Options

__all__ = ["FAMILIES", "Cluster", "Family", "Options", "cluster"]
