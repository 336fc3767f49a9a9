"""What observations mean: pure functions over recorded launches. Imports neither torch nor Hydra."""
