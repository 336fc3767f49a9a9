"""Holds a check against its golden: what is asked for, what becomes of it, and which files are written."""
