"""Commands of the product in processes forked from one that has imported everything: the same code, without the wait.

A world of three ranks takes ten seconds on two cores, nearly all of it imports. Here the driver is forked from a
server that imported torch and the product, and each rank from its driver. What a process has from its start and a
fork cannot have is checked: a rank whose environment or hash seed is not the server's is started as the product
starts it. Not for tests of starting and ending itself: `tests.command.run` with ``real=True`` forks nothing.
"""
