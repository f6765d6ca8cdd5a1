"""From a placed job to processes: rank map, environment, command."""

from rackyard.launch.build import build, check_script, warm_modules
from rackyard.launch.environment import Gang
from rackyard.launch.plan import LaunchPlan, RankPlan
from rackyard.launch.refusal import refusals

__all__ = ["Gang", "LaunchPlan", "RankPlan", "build", "check_script", "refusals", "warm_modules"]
