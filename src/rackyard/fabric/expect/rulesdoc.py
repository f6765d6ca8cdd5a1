"""The reference page of the audit's rules, made from the rules themselves.

`python -m rackyard.fabric.expect.rulesdoc > docs/fabric-rules.md` writes the page; a test compares it with the file.
"""

import sys

from rackyard.fabric.expect.auditing import ALL_RULES

_INTRO = """\
# Audit rules

<!-- Made by `python -m rackyard.fabric.expect.rulesdoc`. Don't edit: `make docs` writes it, a test compares it. -->

What `rackyard topo audit` looks at, in this order. The severity is the highest that a failure of the rule has: some
failures are milder (one uplink of 18 missing is a warning, more than a fifth of them an error). How rules judge, and
what `PASS`, `UNKNOWN` and `NOT_APPLICABLE` mean: [audit](audit.md).

"""

_OUTRO = """
`rackyard topo audit --list` prints this table, `--rule RULE` runs only the rules named, and `rackyard run --accept
RULE` starts a job in spite of a rule's errors.
"""


def render() -> str:
    """The page in Markdown."""
    table = ["| rule | severity | what it holds |", "|---|---|---|"]
    table += [f"| `{rule.id}` | {rule.severity.value} | {rule.what} |" for rule in ALL_RULES]
    return _INTRO + "\n".join(table) + "\n" + _OUTRO


if __name__ == "__main__":
    sys.stdout.write(render())
