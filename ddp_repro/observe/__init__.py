"""Watches a launch from outside: digests, probes and the recorder. Moves no bit of what it watches."""
