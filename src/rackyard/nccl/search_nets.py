"""Which network devices the graph search tries, and in which order.

Source of the rules: NCCL 2.30.7 and 2.29.7, `src/graph/topo.cc` and `src/graph/search.cc`, with NCCL_NETDEVS_POLICY
and NCCL_MNNVL_SCATTER_NETS_ENABLE unset (AUTO, 1).
"""

from rackyard.nccl.linktypes import GPU, MAX_CHANNELS, NET
from rackyard.nccl.paths_local import Local
from rackyard.nccl.topology import System


class NetChoice:
    """The nets of one system in the order in which they are tried; lists are kept, since paths stay the same.

    Nets go by their places. ``known_as`` gives the place of the first net with the same id, which NCCL finds by it.
    """

    def __init__(self, system: System) -> None:
        self._system = system
        self._local = Local(system)
        ids = [net.id for net in system.nets()]
        self.known_as = [ids.index(net) for net in ids]
        self._rows = [system.rows[NET][number] for number in system.of_type[GPU]]
        self._lists: dict[tuple[int, int | None], tuple[int, ...]] = {}

    def nearest_gpus(self, net: int) -> list[int]:
        """Places of the GPUs nearest to a net."""
        return self._local.near(self._system.of_type[NET][net], GPU)

    def _cycle(self, gpu: int) -> list[int]:
        """The nets a GPU uses for channels 0, 1, ... until the first comes again."""
        nets = [self.known_as[net] for net in self._local.nets(gpu)[:MAX_CHANNELS]]
        return nets[: nets.index(nets[0], 1)] if nets[0] in nets[1:] else nets

    def order(self, type_inter: int, gpu: int | None) -> tuple[int, ...]:
        """Nets for one GPU, or for all of them: preferred ones first, then those with a path of up to ``type_inter``.

        Raises TopologyRefused where a GPU reaches no net.
        """
        key = (type_inter, gpu)
        found = self._lists.get(key)
        if found is None:
            gpus = range(len(self._rows)) if gpu is None else (gpu,)
            nets = dict.fromkeys(self._preferred(gpus))
            for path_type in range(type_inter + 1):
                for place in gpus:
                    row = self._rows[place]
                    types = row.type[:MAX_CHANNELS] if row else []
                    nets.update(dict.fromkeys(net for net, found in enumerate(types) if found == path_type))
            found = self._lists[key] = tuple(nets)
        return found

    def _preferred(self, gpus: "range | tuple[int, ...]") -> list[int]:
        cycles = [self._cycle(gpu) for gpu in gpus]
        if len(self._system.host_hashes) < 2:
            return [net for cycle in cycles for net in cycle]
        # Several hosts (multi-node NVLink): the first net of every GPU before the second of any.
        longest = max(map(len, cycles), default=0)
        return [cycle[turn] for turn in range(longest) for cycle in cycles if turn < len(cycle)]
