"""What is said of a cause."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A cause in the user's words: a short ``title``, a sentence with gaps, and what to change."""

    title: str
    message: str
    advice: str
