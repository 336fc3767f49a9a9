"""What a person types after a command, before Hydra reads it: what is meant, and how it must be written."""

import re
import shlex

CUSTOM_TARGET = "workload._target_="
OPEN = ("launcher.env.", "bisect.factors.")
"""Keys below which a person adds some of their own."""
LISTS = ("runs", "compare.allow", "judge.ignore", "bisect.skip", "survey.accept", "seeds")
"""Keys that hold a list of texts, or of numbers."""
CANDIDATE = "candidate="


def as_meant(arguments: list[str]) -> list[str]:
    """Return the arguments with what is short for something written out."""
    opened = [f"++{argument}" if argument.startswith(OPEN) else argument for argument in arguments]
    return _own_workload(_listed([_overrides_quoted(argument) for argument in opened]))


def _own_workload(arguments: list[str]) -> list[str]:
    """Have ``workload._target_=…`` mean a workload that has none of the defaults' keys."""
    custom = any(argument.startswith(CUSTOM_TARGET) for argument in arguments)
    if not custom or any(argument.startswith("workload=") for argument in arguments if argument != "workload=custom"):
        return arguments
    opened = [f"++{argument}" if argument.startswith("workload.") else argument for argument in arguments]
    return ["workload=custom", *(argument for argument in opened if argument != "workload=custom")]


def _listed(arguments: list[str]) -> list[str]:
    """Have ``runs=a,b`` mean ``runs=[a,b]``, and ``runs=a`` a list of one; with ``-m`` commas and calls are Hydra's."""
    is_sweep = any(argument in ("-m", "--multirun") for argument in arguments)
    return [argument if is_sweep and set(argument) & set(",(") else _in_brackets(argument) for argument in arguments]


def _overrides_quoted(argument: str) -> str:
    """Have ``candidate=[a=1,b=2]`` hold overrides, which Hydra reads between quotes alone."""
    value = argument.removeprefix(CANDIDATE)
    if value == argument or not value or set(value) & set("'\"$") or value in ("[]", "null"):
        return argument
    inner = value[1:-1] if value.startswith("[") and value.endswith("]") else value
    return f"{CANDIDATE}[{','.join(quoted(one.strip()) for one in _parts(inner))}]"


def _parts(text: str) -> list[str]:
    """Return what commas part, outside brackets."""
    parts, depth = [""], 0
    for sign in text:
        depth += (sign in "[{(") - (sign in "]})")
        if sign == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


def _in_brackets(argument: str) -> str:
    key, _, value = argument.partition("=")
    is_bare = value and not value.startswith(("[", "$")) and value != "null"
    return f"{key}=[{value}]" if key in LISTS and is_bare else argument


def how_to_write(argument: str) -> str:
    """Return how an argument that Hydra cannot read is written."""
    if argument.startswith("-"):
        return f"Keys are set without dashes: {argument.lstrip('-').replace(' ', '=', 1)}"
    key, equals, value = argument.partition("=")
    if not equals or not key:
        return "Write key=value in one word, without spaces around the =: nproc=4, or 'output.dir=\"my runs\"'."
    again = shlex.quote(f"{key}={quoted(value)}")
    if value.startswith(("[", "{")):
        return f'Quote each text in it, for the shell and for Hydra: {key}=\'["a text","another"]\''
    return f"Quote the value, for the shell and for Hydra: {again}"


def quoted(value: str) -> str:
    """Return a text as Hydra reads any text: between its quotes."""
    return f'"{_escaped(value)}"'


def _escaped(value: str) -> str:
    """Return a text as it stands between Hydra's quotes, where a backslash is one only before a quote."""
    return re.sub(r'(\\*)("|$)', lambda found: found[1] * 2 + (r"\"" if found[2] else ""), value)
