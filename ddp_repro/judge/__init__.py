"""What recorded launches mean: pure functions over traces. Imports neither torch nor Hydra."""
