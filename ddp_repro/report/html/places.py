"""The places of causal order that a page shows: what each is called, and its colour in light and in dark."""

import colorsys
from typing import Final

from ddp_repro.judge.rows import REPLICATED, Labels, Rows, causal_place, causal_places
from ddp_repro.trace.schema import PHASES

__all__ = ["CALLED", "COLOURS", "COUNT", "EQUAL", "REPLICATED", "SURFACES", "Labels", "Rows", "causal_places", "contrast"]

ENTRY: Final = causal_place("forward") - 1
COUNT: Final = 2 * len(PHASES) + 1
CALLED: Final = {
    **{causal_place(phase): phase for phase in PHASES},
    ENTRY: "buffer, as the forward begins",
    2 * len(PHASES): "another phase",
}
"""Labels by place, in causal order once sorted."""

SURFACES: Final = {"light": "#ffffff", "dark": "#12161c"}
EQUAL: Final = {"light": "#dfe5ec", "dark": "#2c333d"}
_LEAST: Final = 3.1
"""Contrast of a colour to the cells that are equal; WCAG asks 3 of what is no text."""


def contrast(a: str, b: str) -> float:
    """Return the contrast ratio of two colours (``#rrggbb``) as WCAG 2 computes it, 1 to 21."""
    light, dark = sorted((_luminance(a), _luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _colour(number: int, theme: str) -> str:
    """Return the ``number``-th colour: hues far apart for neighbours, as light or dark as the contrast asks."""
    hue = (0.58 + number * 0.381966) % 1.0
    saturation = (0.78, 0.55)[number % 2]
    lightness = (0.5, 0.38)[number // 2 % 2] if theme == "light" else (0.55, 0.68)[number // 2 % 2]
    step = -0.01 if theme == "light" else 0.01
    while True:
        made = "#" + "".join(f"{round(c * 255):02x}" for c in colorsys.hls_to_rgb(hue, lightness, saturation))
        if contrast(made, EQUAL[theme]) >= _LEAST and contrast(made, SURFACES[theme]) >= _LEAST:
            return made
        lightness += step


COLOURS: Final = {
    theme: {place: _colour(number, theme) for number, place in enumerate(sorted(CALLED))} for theme in SURFACES
}
"""``#rrggbb`` by theme and place."""
