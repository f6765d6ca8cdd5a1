"""How a job's command reads: as plain words, or as text that only a shell understands. Pure, standard library only."""

import shlex

_UNQUOTED = frozenset("\n&|;<>()$`*?[]{}~#!")
_DOUBLE_QUOTED = frozenset("$`\\")


def split(run: str) -> tuple[str, ...] | None:
    """The words of a command that needs no shell; None for one that does, or that is in doubt."""
    if _needs_shell(run):
        return None
    try:
        words = shlex.split(run)
    except ValueError:
        return None
    return tuple(words) if words and "=" not in words[0] else None


def after_python(words: tuple[str, ...]) -> tuple[str, ...]:
    """What follows `python` in a Python command: the script or `-m module`, and its arguments. Ranks are unbuffered
    already, so `-u` says nothing."""
    rest = words[1:]
    while rest and rest[0] == "-u":
        rest = rest[1:]
    return rest


def _needs_shell(run: str) -> bool:
    quote, skip = "", False
    for character in run:
        if skip:
            skip = False
        elif quote == "'":
            quote = "" if character == "'" else quote
        elif quote == '"':
            if character in _DOUBLE_QUOTED:
                return True
            quote = "" if character == '"' else quote
        elif character in "'\"":
            quote = character
        elif character == "\\":
            skip = True
        elif character in _UNQUOTED:
            return True
    return False
