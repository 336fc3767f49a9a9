"""Answers `cost`."""
