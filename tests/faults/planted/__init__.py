"""Workloads with one planted fault each, and their clean twins; the product runs them as a user's own factory."""
