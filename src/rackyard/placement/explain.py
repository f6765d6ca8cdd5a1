"""A placement or a rejection in lines of text, for `plan` and `why`."""

from rackyard.placement.model import Placement, RackVerdict, Rejection

SHOWN = 40
"""Racks listed before the rest are only counted."""


def explain(answer: Placement | Rejection) -> tuple[str, ...]:
    """Lines without colour or padding to the terminal's width."""
    return _rejection(answer) if isinstance(answer, Rejection) else _placement(answer)


def _placement(placement: Placement) -> tuple[str, ...]:
    nodes = placement.nodes()
    pieces = len(placement.segments)
    splits = next((int(term.value) for term in placement.cost if term.name == "split-segments"), 0)
    counts = (len(placement.seats), "rank"), (len(nodes), "node"), (pieces - splits, "segment")
    lines = ["placed: {} on {} in {}".format(*(_many(count, what) for count, what in counts))]
    if splits:
        lines[0] += f", cut into {pieces} pieces"
    ranks: dict[str, list[int]] = {}
    for seat in placement.seats:
        ranks.setdefault(seat.node, []).append(seat.rank)
    for segment in placement.segments:
        mine = [rank for node in segment.nodes for rank in ranks.get(node, ())]
        span = f"ranks {min(mine)}-{max(mine)}" if len(mine) > 1 else f"rank {mine[0]}"
        lines.append(f"  segment {segment.index}: {span} in {segment.rack} on {_runs(segment.nodes)}")
    lines.append(f"  spares kept: {_runs(placement.spares) if placement.spares else 'none'}")
    for choice in placement.choices:
        mark = "chosen" if choice.chosen else "not taken"
        lines.append(f"  segment {choice.segment}, {choice.way}: {mark}: {choice.detail}")
    lines.append("  chosen by:")
    lines += [f"    {term.name} = {term.value:g}: {term.meaning}" for term in placement.cost]
    return (*lines, "  racks:", *_racks(placement.racks))


def _rejection(rejection: Rejection) -> tuple[str, ...]:
    return (
        f"no seat ({rejection.constraint}): {rejection.summary}",
        f"  fix: {rejection.fix}",
        "  racks:",
        *_racks(rejection.racks),
    )


def _racks(verdicts: tuple[RackVerdict, ...]) -> list[str]:
    ordered = sorted(verdicts, key=lambda verdict: not verdict.chosen)  # stable: site order within each
    lines = [f"    {verdict.rack}: {verdict.binding}: {verdict.detail}" for verdict in ordered[:SHOWN]]
    return lines + ([f"    and {len(ordered) - SHOWN} more"] if len(ordered) > SHOWN else [])


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _runs(names: tuple[str, ...]) -> str:
    """`r01-t01..r01-t04, r02-t01`: names in a row that only count up are shown by their ends."""
    runs: list[list[str]] = []
    for name in names:
        if runs and _follows(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in runs)


def _follows(before: str, after: str) -> bool:
    stem = before.rstrip("0123456789")
    digits, next_ = before[len(stem) :], after[len(stem) :]
    return (
        after.startswith(stem)
        and digits.isascii()
        and digits.isdecimal()
        and next_ == f"{int(digits) + 1:0{len(digits)}d}"
    )
