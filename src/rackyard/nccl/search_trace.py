"""Attempts that need not be made, because an earlier one is known to have gone the same way.

The course of an attempt depends on its bandwidth only through the question of which links and nets are full when. A
full link stops a channel after a certain number of channels over it; a lower bandwidth leads to the same course if that
number is the same for every link and net that was ever found full (the others have more room than before). Then the
steps left are the same too, and so are the channels; whether these could be an improvement is a comparison of numbers.
"""

from dataclasses import dataclass

from rackyard.nccl.graphs import PATTERN_BALANCED_TREE
from rackyard.nccl.numbers import as_float
from rackyard.nccl.search_board import Board
from rackyard.nccl.search_draft import Draft
from rackyard.nccl.search_walk import PERFECT, Walk

Course = tuple[int, int, int, int, int, int]
"""What shapes an attempt beside bandwidth: pattern, crossing, one order, path types that occur, most channels."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What is known of an attempt: its bandwidth (GB/s), the most channels it completed, the steps it had left.

    ``full`` holds for each link that was found full whether half the bandwidth was taken from it at a time, and how
    often there is room; ``full_nets`` how many channels have room on nets that were found full.
    """

    bw: float
    most: int
    left: int
    full: dict[int, tuple[bool, int]]
    full_nets: dict[int, int]


class Traces:
    """The traces of one search, by course."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._kept: dict[Course, list[Trace]] = {}

    def record(self, course: Course, walk: Walk, left: int) -> None:
        """Keep what an attempt showed, if it can be compared with others."""
        trial, board = walk.trial, self._board
        moves = walk.moves
        if left == PERFECT or trial.bw_intra != trial.bw_inter or board.special_used or moves.heads_only:
            return
        halves = trial.pattern == PATTERN_BALANCED_TREE and bool(board.system.inter)
        if halves and board.full & moves.half_links & moves.whole_links:
            return
        full = {link: halves and link in moves.half_links for link in board.full}
        rooms = {link: (half, self._room(link, half, trial.bw_intra)) for link, half in full.items()}
        nets = {net: self._net_room(net, trial.bw_inter) for net in walk.full_nets}
        self._kept.setdefault(course, []).append(Trace(trial.bw_intra, walk.most, left, rooms, nets))

    def known(self, course: Course, trial: Draft, best: Draft) -> int | None:
        """Steps that an attempt would leave, if it is known, and known to find nothing better than ``best``."""
        if trial.bw_intra != trial.bw_inter:
            return None
        for trace in self._kept.get(course, ()):
            if (
                _in_vain(trace.most, trial, best)
                and trace.bw >= trial.bw_intra
                and self._same_rooms(trace, trial.bw_intra)
            ):
                return trace.left
        return None

    def _same_rooms(self, trace: Trace, bw: float) -> bool:
        return all(self._room(link, half, bw) == room for link, (half, room) in trace.full.items()) and all(
            self._net_room(net, bw) == room for net, room in trace.full_nets.items()
        )

    def _room(self, link: int, half: bool, bw: float) -> int:
        """How often a bandwidth, or half of it, can be taken from a link."""
        amount = as_float(bw / 2) if half else bw
        after = self._board.remainder(amount)
        left, room = self._board.left[link], 0
        while left >= amount:
            left, room = after[left], room + 1
        return room

    def _net_room(self, net: int, bw: float) -> int:
        """How many channels a net carries, -1 for any number; NCCL counts whole GB/s."""
        whole = int(bw)
        if whole == 0:
            return -1
        left, room = self._board.net_left[net], 0
        while left >= whole:
            left, room = as_float(left - whole), room + 1
        return room


def _in_vain(most: int, trial: Draft, best: Draft) -> bool:
    """Whether no number of channels up to ``most`` can be an improvement (see `Draft.beats`)."""
    total = as_float(most * trial.bw_intra)
    if most < trial.min_channels or total < best.total_intra:
        return True
    alike = trial.pattern == best.pattern and trial.cross_nic == best.cross_nic
    return total == best.total_intra and not alike
