"""The moves of a walker in the graph search: where to go from a GPU, in the order in which NCCL tries it.

Source of the rules: NCCL 2.30.7 and 2.29.7, `src/graph/search.cc`.
"""

from typing import Final

from rackyard.nccl.graphs import (
    PATTERN_BALANCED_TREE,
    PATTERN_COLLNET_DIRECT,
    PATTERN_NVLS,
    PATTERN_RING,
    PATTERN_TREE,
)
from rackyard.nccl.linktypes import GPU, NET, NVS, PATH_DIS, UNDEF
from rackyard.nccl.numbers import as_float
from rackyard.nccl.search_arena import Arena
from rackyard.nccl.search_board import Route
from rackyard.nccl.search_draft import Draft

FREE: Final = 0
IN_PCI_ORDER: Final = 1
AS_BEFORE: Final = 2

Fare = tuple[tuple[Route, float], ...]
"""Routes to take together, each with how many times the channel's bandwidth."""

Move = tuple[Route | Fare | None, float, int, int, int, int, int, int]
"""What it costs (route and GB/s), then the next stand: GPU, step, the step that turns to the net, the step that closes
the ring, mask of GPUs used, net to leave by (UNDEF for none)."""


class Moves:
    """Moves within the limits of one trial; lists that do not depend on the bandwidth left are kept.

    ``half_links`` are the links of the ways out to nets, ``whole_links`` those of all other ways that were listed.
    """

    def __init__(self, arena: Arena, trial: Draft) -> None:
        self.heads_only = trial.pattern in (PATTERN_NVLS, PATTERN_COLLNET_DIRECT)
        self.half_links: set[int] = set()
        self.whole_links: set[int] = set()
        self._arena = arena
        self._board = arena.board
        self._trial = trial
        self._n_gpus = arena.n_gpus
        self._symmetric = trial.pattern in (PATTERN_BALANCED_TREE, PATTERN_TREE)
        self._onward: dict[int, list[tuple[int, int, Route]]] = {}
        self._out: dict[tuple[int, int, int], list[tuple[int, Route]]] = {}
        self._fares: dict[int, Fare] = {}
        ring, inter = trial.pattern == PATTERN_RING, arena.system.inter
        self._turn = (self._n_gpus - 1 if ring else 0) if inter else UNDEF
        self._close = self._n_gpus - 1 if ring and not inter else UNDEF

    def start(self, net: int, gpu: int) -> Move | None:
        """The move onto the first GPU of a channel, from a net or (UNDEF) from nowhere; None if its path is too bad."""
        route = None
        if net != UNDEF:
            route = self._board.route(NET, net, GPU, gpu)
            if not self._passes(route, self._trial.type_inter):
                return None
            self.whole_links.update(route.links)
        return route, self._trial.bw_inter, gpu, 0, self._turn, self._close, 1 << gpu, UNDEF

    def after(self, stand: Move, order: int, net_in: int, first: int) -> list[Move]:
        """The moves from a stand, in the order in which they are tried."""
        _, _, gpu, step, turn, close, used, net_out = stand
        last = self._n_gpus - 1
        if step == turn:
            return self._moves_out(stand, net_in)
        if self.heads_only:
            return [(self._fare(gpu), 0.0, gpu, self._n_gpus, -1, -1, used, net_out)]
        bw = self._trial.bw_intra
        if step < last:
            return [
                (route, bw, on, step + 1, turn, close, used | bit, net_out)
                for on, bit, route in self._moves_on(stand, order, net_in)
            ]
        if step == close:
            route = self._board.route(GPU, gpu, GPU, self._arena.first_of_rank[first])
            if not self._passes(route, self._trial.type_intra):
                return []
            return [(route, bw, first, step + 1, turn, -1, used, net_out)]
        return [(None, 0.0, gpu, self._n_gpus, -1, -1, used, net_out)]

    def _moves_on(self, stand: Move, order: int, net_in: int) -> list[tuple[int, int, Route]]:
        """GPUs to go on to, each with its bit in the mask and the route there."""
        _, _, gpu, step, turn, _, used, _ = stand
        if order != FREE:
            on = step + 1 if order == IN_PCI_ORDER else self._arena.first_of_rank[self._trial.lanes[-1].gpus[step + 1]]
            route = self._board.route(GPU, gpu, GPU, on)
            self.whole_links.update(route.links)
            return [(on, 1 << on, route)] if self._passes(route, self._trial.type_intra) else []
        if self._arena.has_switch or turn == -1:
            entries = self._onward.get(gpu)
            if entries is None:
                entries = self._onward[gpu] = self._passing(gpu, self._arena.onward(gpu, self._trial.pattern))
            return [entry for entry in entries if not used & entry[1]]
        toward_net = self._arena.onward_with_net(gpu, net_in, used)
        if turn != step + 1 and self._arena.all_alike(gpu, toward_net):
            # The net's own GPU is to come last, next to the net: farther ones first.
            toward_net.reverse()
        return self._passing(gpu, toward_net)

    def _passing(self, gpu: int, others: list[int]) -> list[tuple[int, int, Route]]:
        """GPUs with their bits and routes, without those whose path type is not allowed."""
        routes = ((on, self._board.route(GPU, gpu, GPU, on)) for on in others)
        passing = [(on, 1 << on, route) for on, route in routes if self._passes(route, self._trial.type_intra)]
        self.whole_links.update(*(route.links for _, _, route in passing))
        return passing

    def _moves_out(self, stand: Move, net_in: int) -> list[Move]:
        """Nets to leave by. A balanced tree leaves by the same net from its first two GPUs, half of the load each."""
        _, _, gpu, step, _, close, used, net_out = stand
        trial = self._trial
        bw, turn, must = trial.bw_inter, -1, -1
        if trial.pattern == PATTERN_BALANCED_TREE:
            bw = as_float(bw / 2)
            turn, must = (1, -1) if step == 0 else (-1, net_out)
        elif trial.pattern == PATTERN_TREE:
            must = net_in
        elif trial.pattern == PATTERN_RING and trial.cross_nic == 2 and len(trial.lanes) & 1:
            must = trial.lanes[-1].net_in
        key = (gpu, net_in, must)
        entries = self._out.get(key)
        if entries is None:
            entries = self._out[key] = [
                (known_as, route)
                for net in self._arena.nets.order(trial.type_inter, gpu)
                for known_as, route in ((self._arena.nets.known_as[net], self._board.route(GPU, gpu, NET, net)),)
                if must in (-1, known_as) and self._may_leave(net, net_in) and self._passes(route, trial.type_inter)
            ]
            self.half_links.update(*(route.links for _, route in entries))
        return [(route, bw, gpu, step, turn, close, used, net) for net, route in entries]

    def _may_leave(self, net: int, net_in: int) -> bool:
        """Whether planes and rails allow a channel that comes in by ``net_in`` to leave by ``net``."""
        nodes, trial = self._arena.net_nodes, self._trial
        there, here = nodes[net], nodes[net_in]
        if self._arena.has_rails and -1 not in (there.plane, here.plane) and there.plane != here.plane:
            return False
        if trial.cross_nic != 0:
            return True
        if self._arena.has_rails and -1 not in (there.rail, here.rail):
            return there.rail == here.rail
        return there.asic == here.asic and there.port == here.port

    def _fare(self, head: int) -> Fare:
        """What a head costs. nvls: all GPUs through the switch, the head twice; collnet: a part to every other GPU."""
        fare = self._fares.get(head)
        if fare is None:
            board, gpus = self._board, range(self._n_gpus)
            if self._trial.pattern == PATTERN_NVLS:
                pulls = tuple((board.route(NVS, 0, GPU, gpu), 2.0 if gpu == head else 1.0) for gpu in gpus)
                pushes = tuple((board.route(GPU, gpu, NVS, 0), 2.0 if gpu == head else 1.0) for gpu in gpus)
            else:
                part = as_float(1.0 / (self._n_gpus - 1))
                pulls = tuple((board.route(GPU, head, GPU, gpu), part) for gpu in gpus)
                pushes = tuple((board.route(GPU, gpu, GPU, head), part) for gpu in gpus)
            fare = self._fares[head] = pulls + pushes
        return fare

    def passes_times(self, route: Route, times: float) -> bool:
        """Whether a part of a fare is allowed; NCCL looks at its path type only where the bandwidth is taken once."""
        return self._passes(route, self._trial.type_intra) if times == 1 else route.type < PATH_DIS

    def _passes(self, route: Route, worst: int) -> bool:
        """Whether a route's type is allowed; trees look at the way back too."""
        if route.type >= PATH_DIS or route.type > worst:
            return False
        return not self._symmetric or route.back_type <= worst
