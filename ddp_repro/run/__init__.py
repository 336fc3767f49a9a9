"""Makes a launch: identity, seeds, determinism, world, data, training and the launcher."""
