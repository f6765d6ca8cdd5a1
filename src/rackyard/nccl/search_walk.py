"""One attempt of the graph search: channels for given limits, found depth first, within a given number of steps.

A walker stands on a GPU and lists its moves: on to another GPU, out to a net, back to the first GPU, or done. A move is
made if every link of its route has the channel's bandwidth left. When a channel is complete the next one is searched
for on what is left; a better set of channels replaces the best so far. Every stand costs a step, and steps are counted,
never timed, so that the result is the same everywhere.

Source of the rules: NCCL 2.30.7 and 2.29.7, `src/graph/search.cc`.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Final

from rackyard.nccl.graphs import PATTERN_NVLS, PATTERN_RING
from rackyard.nccl.linktypes import UNDEF
from rackyard.nccl.numbers import as_float
from rackyard.nccl.search_arena import Arena
from rackyard.nccl.search_board import Route
from rackyard.nccl.search_draft import Draft, Lane
from rackyard.nccl.search_moves import AS_BEFORE, FREE, IN_PCI_ORDER, Fare, Move, Moves
from rackyard.nccl.xmlrefused import TopologyRefused

PCI_ORDER_STEPS: Final = 1 << 10
PERFECT: Final = -1

State = tuple[int, int, tuple[int, ...], tuple[int, int], tuple[float, ...], tuple[float, ...]]
"""Channels, hops, order of GPUs and nets of the last channel where they matter, GB/s left on links and nets."""


class Walk:
    """One attempt. ``steps`` is what is left of its steps, -1 once the most channels allowed were found.

    ``best`` is the best draft so far, of this attempt or before it; ``used_steps`` counts all steps made.
    """

    def __init__(self, arena: Arena, trial: Draft, best: Draft) -> None:
        self.arena = arena
        self.trial = trial
        self.best = best
        self.steps = 0
        self.used_steps = 0
        self.most = 0
        self.full_nets: set[int] = set()
        self.moves = Moves(arena, trial)
        self._board = arena.board
        self._cost: dict[State, int] = {}

    def run(self, steps: int) -> int:
        """Search; the steps that were left, or PERFECT."""
        self.steps = steps
        self._next_channel()
        return self.steps

    # Channels, one after the other

    def _next_channel(self) -> None:
        """Search for one more channel, and from each that is found for the next.

        What follows depends on the state alone. A state met again, with nothing but more found since, would lead
        through the same channels and to nothing better: its steps are counted and not made.
        """
        state = self._state()
        known = self._cost.get(state) if state else None
        if known is not None:
            self.steps = max(0, self.steps - known)
            return
        before = self.steps
        self._search_channel()
        if state and self.steps > 0:
            self._cost[state] = before - self.steps

    def _state(self) -> State | None:
        """All that the search for further channels depends on; None where it is not worth keeping."""
        trial, board = self.trial, self._board
        lanes = trial.lanes
        if not lanes or self.steps <= 0 or self.moves.heads_only or not self.arena.one_latency:
            return None
        last = lanes[-1]
        order = last.gpus if trial.same_channels or not self.arena.system.inter else ()
        nets = (last.net_in, last.net_out) if trial.cross_nic else (-1, -1)
        return (len(lanes), trial.hops, order, nets, tuple(board.left), tuple(board.net_left))

    def _search_channel(self) -> None:
        if self.arena.system.inter:
            self._from_nets()
            return
        lanes = self.trial.lanes
        if self.trial.pattern == PATTERN_NVLS:
            self._try(UNDEF, len(lanes), FREE)
            return
        if lanes:
            self._try(UNDEF, self.arena.first_of_rank[lanes[-1].gpus[0]], AS_BEFORE)
        else:
            self._try(UNDEF, 0, IN_PCI_ORDER)
        if not (lanes and self.trial.same_channels):
            for place in range(self.arena.n_gpus):
                self._try(UNDEF, place, FREE)

    def _from_nets(self) -> None:
        trial, arena = self.trial, self.arena
        whole = int(trial.bw_inter)
        try:
            nets = arena.nets.order(trial.type_inter, None)
        except TopologyRefused:
            return
        number = len(trial.lanes)
        for turn in range(len(nets)):
            net = nets[(number + turn) % len(nets)]
            if not self._may_start(net, whole):
                continue
            trial.latency_inter = arena.net_nodes[net].latency
            ports = arena.same_port[net]
            for port in ports:
                self._board.net_left[port] = as_float(self._board.net_left[port] - whole)
            found = self._with_head(net, len(nets)) if self.moves.heads_only else self._with_net(net)
            for port in ports:
                self._board.net_left[port] = as_float(self._board.net_left[port] + whole)
            if found:
                break

    def _may_start(self, net: int, whole: int) -> bool:
        trial = self.trial
        if trial.coll_net and not self.arena.net_nodes[net].coll:
            return False
        if self._board.net_left[net] < whole:
            self.full_nets.add(net)
            return False
        if trial.pattern == PATTERN_RING and trial.cross_nic == 2 and len(trial.lanes) & 1:
            # With crossing NICs every second channel goes the way back of the one before.
            return self.arena.nets.known_as[net] == trial.lanes[-1].net_out
        return True

    def _with_head(self, net: int, n_nets: int) -> bool:
        """Let the net's own GPU be the head of a channel, unless it heads another; whether it was tried."""
        lanes = self.trial.lanes
        head = self.arena.net_nodes[net].local_gpu
        if len(lanes) >= n_nets or head == UNDEF:
            return False
        if any(self.arena.first_of_rank[lane.gpus[0]] == self.arena.first_of_rank[head] for lane in lanes):
            return False
        self._try(net, head, FREE)
        return True

    def _with_net(self, net: int) -> bool:
        """All channels that come in by a net. Always False: other nets are to be tried too."""
        lanes = self.trial.lanes
        if lanes and self.trial.same_channels:
            first = self.arena.first_of_rank[lanes[-1].gpus[0]]
            self._try(net, first, AS_BEFORE)
            return False
        if not lanes and not self.arena.has_switch:
            # A reference to compare others with: has steps of its own, and few.
            kept, self.steps = self.steps, PCI_ORDER_STEPS
            self._try(net, 0, IN_PCI_ORDER)
            self.steps = PERFECT if self.steps == PERFECT else kept
        own = self.arena.net_nodes[net].local_gpu
        near = self.arena.nets.nearest_gpus(net)
        for gpu in chain([own] if own != UNDEF else [], (gpu for gpu in near if gpu != own)):
            self._try(net, gpu, FREE)
        return False

    def _try(self, net: int, gpu: int, order: int) -> None:
        """All channels from one GPU; each is added and the next channel searched for."""
        trial = self.trial
        start = self.moves.start(net, gpu)
        if self.steps <= 0 or start is None:
            return
        for lane in self._channels(start, order, net):
            trial.lanes.append(lane)
            self.most = max(self.most, len(trial.lanes))
            if trial.beats(self.best, self.arena.n_gpus):
                self.best = trial.copy()
                if len(trial.lanes) == trial.max_channels:
                    self.steps = PERFECT
            if len(trial.lanes) < trial.max_channels:
                self._next_channel()
            trial.lanes.pop()

    # One channel

    def _channels(self, start: Move, order: int, net: int) -> Iterator[Lane]:
        """Complete channels from one GPU. Each is given out with its bandwidth taken, which is given back after it."""
        n_gpus, first = self.arena.n_gpus, start[2]
        path = [first, *(place for place in range(n_gpus) if place != first)]
        stands: list[tuple[Move, Iterator[Move]]] = []
        moves = iter((start,))
        net_in = UNDEF if net == UNDEF else self.arena.nets.known_as[net]
        while True:
            # Out of steps NCCL goes through the remaining moves without making any: so don't.
            move = next(moves, None) if self.steps > 0 else None
            if move is None:
                if not stands:
                    return
                done, moves = stands.pop()
                self._give(done)
                continue
            if not self._take(move):
                continue
            self.steps -= 1
            self.used_steps += 1
            if move[3] == n_gpus:
                yield Lane(tuple(path), net_in, move[7])
                self._give(move)
                continue
            path[move[3]] = move[2]
            stands.append((move, moves))
            moves = iter(self.moves.after(move, order, net_in, first))

    def _take(self, move: Move) -> bool:
        cost = move[0]
        if cost is None:
            return True
        if isinstance(cost, tuple):
            return self._take_fare(cost)
        if not self._board.take(cost, move[1]):
            return False
        self.trial.hops += len(cost.links)
        return True

    def _give(self, move: Move) -> None:
        cost = move[0]
        if cost is None:
            return
        if isinstance(cost, tuple):
            self._give_fare(cost)
            return
        self._board.give(cost, move[1])
        self.trial.hops -= len(cost.links)

    def _take_fare(self, fare: Fare) -> bool:
        for number, (route, times) in enumerate(fare):
            if not self.moves.passes_times(route, times) or not self._board.take(route, self._times_bw(times)):
                self._give_fare(fare[:number])
                return False
            self._add_hops(route, times)
        return True

    def _give_fare(self, fare: Fare) -> None:
        for route, times in reversed(fare):
            self._board.give(route, self._times_bw(times))
            self._add_hops(route, -times)

    def _times_bw(self, times: float) -> float:
        return as_float(self.trial.bw_intra * times)

    def _add_hops(self, route: Route, times: float) -> None:
        """NCCL keeps hops in an integer and adds fractions of them, which cuts towards zero."""
        self.trial.hops = int(as_float(self.trial.hops + as_float(times * len(route.links))))
