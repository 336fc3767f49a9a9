"""What a person types after a command, before Hydra reads it: what is meant, and how it must be written."""

import re
import shlex

CUSTOM_TARGET = "workload._target_="
OPEN = ("launcher.env.", "bisect.factors.")
"""Keys below which a person adds some of their own."""
LISTS = ("runs", "compare.allow", "judge.ignore", "bisect.skip", "survey.accept")
"""Keys that hold a list of texts."""


def as_meant(arguments: list[str]) -> list[str]:
    """Return the arguments with what is short for something written out."""
    opened = [f"++{argument}" if argument.startswith(OPEN) else argument for argument in arguments]
    return _own_workload(_listed(opened))


def _own_workload(arguments: list[str]) -> list[str]:
    """Have ``workload._target_=…`` mean a workload that has none of the defaults' keys."""
    custom = any(argument.startswith(CUSTOM_TARGET) for argument in arguments)
    if not custom or any(argument.startswith("workload=") for argument in arguments if argument != "workload=custom"):
        return arguments
    opened = [f"++{argument}" if argument.startswith("workload.") else argument for argument in arguments]
    return ["workload=custom", *(argument for argument in opened if argument != "workload=custom")]


def _listed(arguments: list[str]) -> list[str]:
    """Have ``runs=a,b`` mean ``runs=[a,b]``, and ``runs=a`` a list of one; with ``-m`` the comma is Hydra's."""
    if any(argument in ("-m", "--multirun") for argument in arguments):
        return arguments
    return [_in_brackets(argument) for argument in arguments]


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
