"""How a judgement is told: terminal and JSON. Imports neither torch nor Hydra."""
