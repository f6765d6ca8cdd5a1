"""What a round has learned: which requests fail now, so that ten thousand like them cost one decision."""

from collections.abc import Hashable
from dataclasses import fields
from math import lcm
from operator import attrgetter

from rackyard.placement.columns import Columns
from rackyard.placement.model import Request

_rest = attrgetter(*(field.name for field in fields(Request) if field.name != "gpus"))


class Forms:
    """Numbers for requests that differ in nothing but their GPUs, and when one of them asks for more of the same."""

    def __init__(self, columns: Columns) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._units: list[int] = []
        self._node = lcm(*(group.size for group in columns.classes))

    def of(self, request: Request) -> int:
        """The number of its form."""
        rest = _rest(request)
        number = self._numbers.setdefault(rest, len(self._numbers))
        if number == len(self._units):
            self._units.append(self._unit(request))
        return number

    def asks_no_less(self, form: int, gpus: int, other: int) -> bool:
        """Whether a gang of so many GPUs fits only where one of `other` GPUs of the same form does.

        Certain for whole multiples of everything that the gang is cut into: leave away some of it, and what is left is
        a seat for the smaller gang. Numbers that don't divide are another matter: 12 GPUs in segments of 8 never fit,
        and 16 may.
        """
        unit = self._units[form]
        return gpus == other or (unit > 0 and gpus > other and gpus % unit == 0 and other % unit == 0)

    def _unit(self, request: Request) -> int:
        """0 where a larger gang can fit though a smaller one doesn't: spread over racks (equal shares may cut groups),
        peers elsewhere, pinned nodes.
        """
        if request.spread != "pack" or request.copies > 1 or request.pin:
            return 0
        node = request.gpus_per_node or self._node
        return lcm(node, request.segment_gpus or 1, *(group.gpus for group in request.groups))


class Failures:
    """Sizes that failed, by form and level: a level blocks all that lower ones block, so what failed stays failed."""

    def __init__(self, forms: Forms) -> None:
        self._forms = forms
        self._failed: dict[int, dict[int, int]] = {}  # form -> GPUs -> lowest level it failed on

    def add(self, form: int, gpus: int, level: int) -> None:
        """It failed on that level."""
        sizes = self._failed.setdefault(form, {})
        sizes[gpus] = min(level, sizes.get(gpus, level))

    def known(self, form: int, gpus: int, level: int) -> bool:
        """Whether it is bound to fail on that level."""
        sizes = self._failed.get(form)
        return sizes is not None and any(
            failed <= level and self._forms.asks_no_less(form, gpus, other) for other, failed in sizes.items()
        )

    def insert(self, level: int) -> None:
        """A booking was put in at that place: what failed with the ones behind it blocked has one more blocked now."""
        for sizes in self._failed.values():
            for gpus, failed in sizes.items():
                sizes[gpus] = failed + (failed > level)
