"""Small random sites and gangs, put before real schedulers: what their rules, as restated for replays, are held to."""

from testbed.rules.cases import Ask, Case, Seated, draw

__all__ = ["Ask", "Case", "Seated", "draw"]
