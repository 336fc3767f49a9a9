"""The places of causal order that a page shows: what each is called, and its colour in light and in dark."""

import colorsys
from typing import Final

from ddp_repro.judge.rows import causal_place
from ddp_repro.trace.schema import PHASES

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


_HUES: Final = {
    "init": (275, 0.60, 0.62),
    "boundary": (320, 0.45, 0.45),
    "data": (28, 0.95, 0.45),
    "rng": (305, 0.75, 0.55),
    CALLED[ENTRY]: (190, 0.90, 0.36),
    "forward": (48, 0.95, 0.36),
    "loss": (2, 0.85, 0.55),
    "grad_local": (216, 0.90, 0.52),
    "grad_reduced": (262, 0.65, 0.40),
    "grad_step": (176, 0.95, 0.28),
    "param": (128, 0.65, 0.36),
    "buffer": (84, 0.80, 0.30),
    "optimizer": (18, 0.60, 0.32),
    "scaler": (340, 0.75, 0.42),
    "collective": (236, 0.50, 0.30),
    "op": (60, 0.60, 0.25),
}
"""Hue in degrees, saturation and lightness: neighbours in causal order lie far apart."""


def _colour(called: str, theme: str) -> str:
    """Return the colour of a place: as light or dark as the contrast asks."""
    hue, saturation, lightness = _HUES.get(called, (210, 0.06, 0.45))
    step = -0.01 if theme == "light" else 0.01
    while True:
        made = "#" + "".join(f"{round(c * 255):02x}" for c in colorsys.hls_to_rgb(hue / 360, lightness, saturation))
        if contrast(made, EQUAL[theme]) >= _LEAST and contrast(made, SURFACES[theme]) >= _LEAST:
            return made
        lightness += step


COLOURS: Final = {
    theme: {place: _colour(called, theme) for place, called in sorted(CALLED.items())} for theme in SURFACES
}
"""``#rrggbb`` by theme and place."""
