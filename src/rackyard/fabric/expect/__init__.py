"""As expected against as found: the audit of what captures say, and the comparison of two sites."""

from rackyard.fabric.expect.auditing import ALL_RULES, audit, audit_facts
from rackyard.fabric.expect.context import Context
from rackyard.fabric.expect.design import diff
from rackyard.fabric.expect.rules import Rule

__all__ = ["ALL_RULES", "Context", "Rule", "audit", "audit_facts", "diff"]
