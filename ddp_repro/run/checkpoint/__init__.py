"""Exact checkpoints: everything that the next step depends on, in bits, written whole or not at all."""
