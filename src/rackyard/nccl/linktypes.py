"""Node, link and path types of NCCL's topology, with the numbers and names NCCL gives them.

They are plain integers, since the path computation and the graph search compare them in their innermost loops. Lower
path types are better. Source: NCCL 2.30.7 and 2.29.7, ``src/graph/topo.h`` and ``src/include/graph.h``.
"""

from typing import Final

GPU: Final = 0
PCI: Final = 1
NVS: Final = 2
CPU: Final = 3
NIC: Final = 4
NET: Final = 5
GIN: Final = 6
RMA: Final = 7
DEV: Final = 8
CXB: Final = 9
NODE_TYPES: Final = ("GPU", "PCI", "NVS", "CPU", "NIC", "NET", "GIN", "RMA", "DEV", "CXB")

LINK_LOC: Final = 0
LINK_NVL: Final = 1
LINK_C2C: Final = 3
LINK_PCI: Final = 4
LINK_SYS: Final = 9
LINK_NET: Final = 10
LINK_TYPES: Final = ("LOC", "NVL", "", "C2C", "PCI", "", "", "", "", "SYS", "NET")

PATH_LOC: Final = 0
PATH_NVL: Final = 1
PATH_NVB: Final = 2
PATH_C2C: Final = 3
PATH_PIX: Final = 4
PATH_PXB: Final = 5
PATH_P2C: Final = 6
PATH_PXN: Final = 7
PATH_PHB: Final = 8
PATH_SYS: Final = 9
PATH_NET: Final = 10
PATH_DIS: Final = 11
PATH_TYPES: Final = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET", "DIS")

UNDEF: Final = -1
LOC_BW: Final = 5000.0
MAX_CHANNELS: Final = 64
MAX_LINKS: Final = 576
MAX_NODES_OF_A_TYPE: Final = 640
