"""A change to a job, as a request and in words that say the same: a fix that names it can be tried."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rackyard.placement.model import Group, Request
from rackyard.placement.rules import valid
from rackyard.placement.tries import could, fits
from rackyard.placement.yard import Yard

NAMED = 4
"""How many names a sentence lists before it counts the rest."""
HARDWARE = ("gpu_memory", "nic_gbps", "domain_gpus")
"""What may be asked of nodes, as keys of a job and of a request."""


@dataclass(frozen=True, slots=True)
class Change:
    """The request once changed, and what to write for it."""

    request: Request
    text: str
    now: bool
    """It was tried, and fits on the site as it is; else only on one that is idle and healthy."""

    def sentence(self) -> str:
        """`spread: pack` fits now."""
        return f"{self.text} fits now" if self.now else f"{self.text}; and that only when more is free"


@dataclass(frozen=True, slots=True)
class Advice:
    """The text of a fix, and the changes that it proposes."""

    text: str
    changes: tuple[Change, ...] = ()


def tried(before: Request, after: Request, yard: Yard, text: str = "") -> Change | None:
    """The change from one request to the other where that fits now and a job file can say it; None otherwise."""
    if after == before or not valid(after) or not fits(after, yard):
        return None
    return Change(after, text or wording(before, after), True)


def later(before: Request, after: Request, yard: Yard) -> Change | None:
    """The same where it fits now, or would on an idle, healthy site."""
    found = tried(before, after, yard)
    if found is None and after != before and valid(after) and could(after, yard):
        return Change(after, wording(before, after), False)
    return found


def advice(changes: Iterable[Change | None], otherwise: Callable[[], Advice]) -> Advice:
    """Any of those changes; where there are none, something else."""
    found = tuple(change for change in changes if change is not None)
    return Advice(", or ".join(change.sentence() for change in found), found) if found else otherwise()


def wording(before: Request, after: Request) -> str:
    """What to write in the job file: `gpus: 64`. Keys that stay as they are aren't named."""
    parts = [_segment(before, after)]
    parts += [_number(before, after, key) for key in ("gpus", "gpus_per_node", "spares", *HARDWARE)]
    parts += [_groups(before.groups, after.groups), _spread(before, after)]
    parts.append("`exclusive: false`" if before.exclusive and not after.exclusive else "")
    for key in ("pin", "exclude", "exclude_racks"):
        gone = sorted(getattr(before, key) - getattr(after, key))
        parts.append(f"`nodes.{key}` without {names(gone)}" if gone else "")
    first, *rest = sorted((part for part in parts if part), key=lambda part: part.startswith("no `"))
    return first + (f" with {' and '.join(rest)}" if rest else "")


def names(every: Sequence[str]) -> str:
    """The first few, and how many more."""
    shown = ", ".join(every[:NAMED])
    return shown + (f" and {len(every) - NAMED} more" if len(every) > NAMED else "")


def _number(before: Request, after: Request, key: str) -> str:
    value = getattr(after, key)
    if value == getattr(before, key):
        return ""
    if key in HARDWARE and not value:
        return f"no `{key}`"
    return f"`{key}: {value:g}`" if isinstance(value, float) else f"`{key}: {value}`"


def _segment(before: Request, after: Request) -> str:
    if after.segment_gpus is None:
        return "" if before.segment_gpus is None else "no `segment`"
    asked = []
    if after.segment_gpus != before.segment_gpus:
        asked.append(f"gpus: {after.segment_gpus}")
    if after.segment_required != before.segment_required:
        if not asked:
            return "`required: false` in `segment`"
        asked.append("required: false")
    return f"`segment: {{{', '.join(asked)}}}`" if asked else ""


def _groups(before: Sequence[Group], after: Sequence[Group]) -> str:
    if before == after:
        return ""
    if not after:
        return "no `groups`"
    if [(group.gpus, group.within) for group in before] == [(group.gpus, group.within) for group in after]:
        return "`required: false` in `groups`"
    told = (
        f"{{gpus: {group.gpus}, within: {group.within}{', required: true' if group.required else ''}}}"
        for group in after
    )
    return f"`groups: [{', '.join(told)}]`"


def _spread(before: Request, after: Request) -> str:
    if after.copies != before.copies and after.copies > 1:
        return f"`checkpoint: {{replicas: {after.copies - 1}}}`"
    if (after.spread, after.copies) == (before.spread, before.copies):
        return ""
    return f"`spread: {{racks: {after.spread}}}`" if isinstance(after.spread, int) else f"`spread: {after.spread}`"
