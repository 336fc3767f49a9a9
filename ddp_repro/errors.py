"""What a run can end with, and the one error that a user can mend."""

from enum import IntEnum, StrEnum


class ExitCode(IntEnum):
    """Exit codes of every command; 1 means a difference was found and nothing else."""

    REPRODUCIBLE = 0
    DIVERGED = 1
    NOT_JUDGED = 2


class Verdict(StrEnum):
    """The three verdicts, as they stand in ``verdict.json`` and on the last line of stdout."""

    REPRODUCIBLE = "REPRODUCIBLE"
    DIVERGED = "DIVERGED"
    NOT_JUDGED = "NOT_JUDGED"

    @property
    def exit_code(self) -> ExitCode:
        """Return the exit code that belongs to this verdict."""
        return ExitCode[self.name]


class ReproError(Exception):
    """Something that the user can mend.

    ``str(error)`` is one short message that says what is wrong; ``hint`` says what to do next. Commands print both
    without a traceback and end with ``NOT_JUDGED``.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
