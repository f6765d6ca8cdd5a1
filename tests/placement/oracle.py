"""The exact optimum of small instances: CP-SAT, term by term, any unit in any domain.

The hard constraints and the terms are those of the engine (docs/placement.md), stated once more for a solver that knows
nothing of segments in a row, shares or swaps. Units that no term tells apart are counted instead of named.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from ortools.sat.python import cp_model
from terms import (
    SIXTEEN,
    Domain,
    Runs,
    consecutive,
    cost,
    domains,
    parallel_groups,
    scope_lengths,
    segment_nodes,
)

from rackyard.fabric import DomainKey, Site
from rackyard.placement import Occupancy, Request

TIME = 4.0
"""Deterministic seconds of CP-SAT for one term."""


@dataclass(frozen=True, slots=True)
class Optimum:
    """`cost` is None when nothing fits. Only the first `proven` terms are known to be the least there are."""

    cost: tuple[int, ...] | None
    proven: int
    where: tuple[DomainKey, ...] = ()
    """The domain of each node, in rank order."""

    @property
    def exact(self) -> bool:
        """Whether all of it is proven."""
        return self.cost is None or self.proven == len(self.cost)


def optimum(request: Request, site: Site, occupancy: Occupancy, time: float = TIME) -> Optimum:
    """The least cost that a gang on whole nodes can have. For sites whose nodes are all of one class."""
    per_node = len(site.nodes[0].gpus)
    found = domains(request, site, occupancy)
    if sum(domain.pinned for domain in found) < len(request.pin) or not found:
        return Optimum(None, 0)
    if any(name not in {usable for domain in found for usable in domain.usable} for name in request.pin):
        return Optimum(None, 0)
    model = _Model(request, found, per_node)
    return model.solve(time)


@dataclass(slots=True)
class _Model:
    request: Request
    found: Sequence[Domain]
    per_node: int
    cp: cp_model.CpModel = field(default_factory=cp_model.CpModel)
    unit: int = 1
    atoms: list[tuple[int, ...]] = field(default_factory=list)
    """Units that no term tells apart."""
    held: list[list[cp_model.IntVar]] = field(default_factory=list)
    """Units by atom and domain."""
    count: list[cp_model.IntVar] = field(default_factory=list)
    """Units by domain."""
    taken: list[cp_model.LinearExprT] = field(default_factory=list)
    """Nodes by domain."""
    used: list[cp_model.IntVar] = field(default_factory=list)

    def solve(self, time: float) -> Optimum:
        """Make the model, then fix one term after the other."""
        nodes = self.request.gpus // self.per_node
        segment = segment_nodes(self.request, self.per_node)
        self.unit = segment if segment and self.request.segment_required else 1
        groupings = self._groupings(nodes, segment)
        self.atoms = self._same(nodes // self.unit, [one.groups for one in groupings])
        self._counts(nodes)
        self._hard(nodes)
        objective = self._terms(nodes, segment)
        return self._lexicographic(objective, time)

    def _groupings(self, nodes: int, segment: int) -> list[Runs]:
        """All that terms count domains under, where it is more than a unit."""
        lengths = [segment] if segment else []
        lengths += [length for _, length, _ in scope_lengths(self.request, self.per_node)]
        runs = [Runs(0, 1, consecutive(nodes, length)) for length in lengths]
        runs += parallel_groups(self.request, self.per_node)
        return [one for one in runs if any(len({at // self.unit for at in group}) > 1 for group in one.groups)]

    def _same(self, units: int, groupings: Sequence[Sequence[Sequence[int]]]) -> list[tuple[int, ...]]:
        signs: list[list[tuple[int, int]]] = [[] for _ in range(units)]
        for number, groups in enumerate(groupings):
            for at, group in enumerate(groups):
                for unit in sorted({position // self.unit for position in group}):
                    signs[unit].append((number, at))
        alike: dict[tuple[tuple[int, int], ...], list[int]] = defaultdict(list)
        for unit, sign in enumerate(signs):
            alike[tuple(sign)].append(unit)
        return [tuple(members) for members in alike.values()]

    def _counts(self, nodes: int) -> None:
        spares = self.request.spares
        for at, atom in enumerate(self.atoms):
            row = []
            for number, domain in enumerate(self.found):
                room = max(0, len(domain.usable) - spares) // self.unit
                row.append(self.cp.new_int_var(0, min(len(atom), room), f"held {at} {number}"))
            self.cp.add(sum(row) == len(atom))
            self.held.append(row)
        for number, domain in enumerate(self.found):
            room = max(0, len(domain.usable) - spares) // self.unit * self.unit
            count = self.cp.new_int_var(0, min(room, nodes) // self.unit, f"count {number}")
            self.cp.add(count == sum(row[number] for row in self.held))
            taken = self.unit * count
            used = self.cp.new_bool_var(f"used {number}")
            self.cp.add(taken <= room * used)
            self.cp.add(taken >= used)
            self.taken.append(taken)
            self.count.append(count)
            self.used.append(used)

    def _hard(self, nodes: int) -> None:
        self.cp.add(sum(self.count) * self.unit == nodes)
        for number, domain in enumerate(self.found):
            self.cp.add(self.taken[number] >= domain.pinned)
        by_rack: dict[str, list[int]] = defaultdict(list)
        for number, domain in enumerate(self.found):
            by_rack[domain.rack].append(number)
        if self.request.copies > 1:
            for numbers in by_rack.values():
                self.cp.add(sum(self.taken[number] for number in numbers) <= nodes // self.request.copies)
        if isinstance(self.request.spread, int):
            self._evenly(nodes // self.unit, self.request.spread, list(by_rack.values()))

    def _evenly(self, units: int, racks: int, members: Sequence[Sequence[int]]) -> None:
        low = units // racks
        chosen = []
        for number, numbers in enumerate(members):
            here = self.cp.new_bool_var(f"rack {number}")
            share = sum(self.taken[at] for at in numbers)
            self.cp.add(share >= max(1, low * self.unit) * here)
            self.cp.add(share <= (low + (units % racks > 0)) * self.unit * here)
            chosen.append(here)
        self.cp.add(sum(chosen) == racks)

    def _terms(self, nodes: int, segment: int) -> list[cp_model.LinearExprT]:
        request, found, used, taken = self.request, self.found, self.used, self.taken
        splits: cp_model.LinearExprT = 0
        if segment and not request.segment_required:
            splits, _ = self._beyond(consecutive(nodes, segment), [[at] for at in range(len(found))])
        scoped: cp_model.LinearExprT = 0
        for scope, length, required in scope_lengths(request, self.per_node):
            beyond, _ = self._beyond(consecutive(nodes, length), self._scope(scope))
            scoped += beyond
            if required:
                self.cp.add(beyond == 0)
        spread = self._spread()
        return [
            splits,
            sum(one for one, domain in zip(used, found, strict=True) if domain.weak),
            scoped,
            self._blocks(),
            spread,
            sum(used),
            sum(one for one, domain in zip(used, found, strict=True) if domain.whole),
            self._broken(),
            sum(len(domain.usable) * one for one, domain in zip(used, found, strict=True)) - nodes,
            self._pieces(),
            sum(self._over(taken[at], domain.clean, nodes) for at, domain in enumerate(found)),
        ]

    def _spread(self) -> cp_model.LinearExprT:
        """The weighted spans of the plan's groups. A domain is under so many stages and so many pipelines that their
        product holds its nodes: implied again, and what makes it possible to prove anything about pipelines.
        """
        each = [[at] for at in range(len(self.found))]
        total: cp_model.LinearExprT = 0
        stages: list[cp_model.IntVar] = []
        for runs in parallel_groups(self.request, self.per_node):
            beyond, touched = self._beyond(runs.groups, each)
            total += runs.weight * beyond
            if runs.step > 1 and touched and stages:
                for taken, down, across in zip(self.taken, stages, touched, strict=True):
                    area = self.cp.new_int_var(0, len(runs.groups) * len(runs.groups[0]), "")
                    self.cp.add_multiplication_equality(area, [down, across])
                    self.cp.add(area >= taken)
            stages = touched
        return total

    def _scope(self, scope: str) -> list[list[int]]:
        members: dict[int, list[int]] = defaultdict(list)
        for at, domain in enumerate(self.found):
            members[domain.scopes[scope]].append(at)
        return list(members.values())

    def _beyond(
        self, groups: Sequence[Sequence[int]], places: Sequence[Sequence[int]]
    ) -> tuple[cp_model.LinearExprT, list[cp_model.IntVar]]:
        """Places under each group beyond its first, summed; and how many groups each place is under."""
        named = [sorted({position // self.unit for position in group}) for group in groups]
        if max((len(units) for units in named), default=1) == 1:
            return 0, []
        under = [self._under(set(units), places) for units in named]
        touched = []
        for number in range(len(places)):
            touched.append(self.cp.new_int_var(0, len(groups), ""))
            self.cp.add(touched[-1] == sum(row[number] for row in under))
        if len(named[0]) * self.unit == len(groups[0]):
            self._fits(touched, len(groups), len(named[0]), places)
        return sum(touched) - len(groups), touched

    def _under(self, units: set[int], places: Sequence[Sequence[int]]) -> list[cp_model.IntVar]:
        """Whether any of those units is in each of the places."""
        mine = [at for at, atom in enumerate(self.atoms) if atom[0] in units]
        row = []
        for place in places:
            here = self.cp.new_bool_var("")
            amount = sum(self.held[at][number] for at in mine for number in place)
            self.cp.add(amount <= len(units) * here)
            self.cp.add(amount >= here)
            row.append(here)
        self.cp.add(sum(row) >= 1)
        return row

    def _fits(
        self, touched: Sequence[cp_model.IntVar], groups: int, size: int, places: Sequence[Sequence[int]]
    ) -> None:
        """What follows from counts alone, which the relaxation does not see: no place can be all of more groups than
        it has units for, and it is under as many as its units fill.
        """
        whole = []
        for under, place in zip(touched, places, strict=True):
            units = sum(self.count[at] for at in place)
            self.cp.add(size * under >= units)
            most = self.cp.new_int_var(0, groups, "")
            self.cp.add(size * most <= units)
            whole.append(most)
        self.cp.add(sum(touched) >= 2 * groups - sum(whole))

    def _blocks(self) -> cp_model.LinearExprT:
        total: cp_model.LinearExprT = 0
        for members in self._scope("block"):
            here = self.cp.new_bool_var("")
            for at in members:
                self.cp.add_implication(self.used[at], here)
            total += here
        return total

    def _broken(self) -> cp_model.LinearExprT:
        total: cp_model.LinearExprT = 0
        for taken, domain in zip(self.taken, self.found, strict=True):
            spare = len(domain.usable) - SIXTEEN
            if spare >= 0:
                broken = self.cp.new_bool_var("")
                self.cp.add(taken <= spare + SIXTEEN * broken)
                total += broken
        return total

    def _pieces(self) -> cp_model.LinearExprT:
        total: cp_model.LinearExprT = 0
        for taken, used, domain in zip(self.taken, self.used, self.found, strict=True):
            piece = self.cp.new_bool_var("")
            count = len(domain.usable)
            self.cp.add(count * used - taken <= count * piece)
            total += piece
        return total

    def _over(self, taken: cp_model.LinearExprT, clean: int, most: int) -> cp_model.LinearExprT:
        over = self.cp.new_int_var(0, most, "")
        self.cp.add(over >= taken - clean)
        return over

    def _lexicographic(self, objective: Sequence[cp_model.LinearExprT], time: float) -> Optimum:
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 1
        solver.parameters.max_deterministic_time = time
        proven, exact, best, where = 0, True, None, []
        for number, term in enumerate(objective):
            if best is not None and (isinstance(term, int) or best[number] == 0):
                proven += exact
                self.cp.add(term <= best[number]) if not isinstance(term, int) else None
                continue
            self.cp.minimize(term)
            status = solver.solve(self.cp)
            if status == cp_model.INFEASIBLE and best is None:
                return Optimum(None, 0)
            exact = exact and status == cp_model.OPTIMAL
            if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
                where = self._where(solver)
                best = cost(where, self.request, self.found, self.per_node)
                self._hint(solver)
            if best is None:
                return Optimum((), 1)
            proven += exact
            if not isinstance(term, int):
                self.cp.add(term <= best[number])
        assert best is not None
        return Optimum(best, proven, tuple(self.found[at].key for at in where))

    def _where(self, solver: cp_model.CpSolver) -> list[int]:
        units = [-1] * sum(len(atom) for atom in self.atoms)
        for atom, row in zip(self.atoms, self.held, strict=True):
            left = list(atom)
            for number, count in enumerate(row):
                for _ in range(solver.value(count)):
                    units[left.pop(0)] = number
        return [number for number in units for _ in range(self.unit)]

    def _hint(self, solver: cp_model.CpSolver) -> None:
        self.cp.clear_hints()
        for at in range(len(self.cp.proto.variables)):
            var = self.cp.get_int_var_from_proto_index(at)
            self.cp.add_hint(var, solver.value(var))
