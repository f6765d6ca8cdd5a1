"""Rules that place gangs, ours and those of other schedulers."""

from rackyard.placement.replay.policies.catalog import POLICIES, Place, Policy, Replace, named

__all__ = ["POLICIES", "Place", "Policy", "Replace", "named"]
