"""Rules of the fabric audit on the command line: which ones a job may start in spite of."""

import difflib
from collections.abc import Sequence

import click

accept_option = click.option(
    "--accept",
    multiple=True,
    metavar="RULE",
    help="Start although the audit of the site finds this error where the job would run (may be repeated).",
)


def known_rules(rules: Sequence[str]) -> Sequence[str]:
    """The same rules. UsageError for one that there is not."""
    if not rules:
        return rules
    from rackyard.errors import UsageError
    from rackyard.fabric.expect import ALL_RULES

    known = {rule.id for rule in ALL_RULES}
    # People leave the room out of the name (`gpu-links`), or have the sign wrong.
    short = {name.partition("/")[2]: name for name in known}
    for rule in rules:
        if rule not in known:
            near = [short[rule]] if rule in short else difflib.get_close_matches(rule, known, 1)
            fix = f"did you mean {near[0]}?" if near else "see: rackyard topo audit --list"
            raise UsageError(f"there is no rule {rule!r}", fix=fix)
    return rules
