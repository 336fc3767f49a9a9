"""One driver on each host, as torchrun would start it: forked, which takes a second, or by torchrun itself."""

import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.command import Done, environment, read_verdict
from tests.hosts.network import Host, Network
from tests.prefork import client

PORT = 29500  # each network has ports of its own


@dataclass
class Drivers:
    """The drivers of one run, under way; ``begin`` starts them and ``end`` waits for them.

    ``folders``, ``extra`` (variables) and ``more`` (overrides) are by node; the ``absent`` one never comes.
    """

    network: Network
    command: str
    overrides: Sequence[str]
    folders: Sequence[Path]
    extra: Sequence[Mapping[str, str]] = ()
    more: Sequence[Sequence[str]] = ()
    absent: int | None = None
    port: int = PORT
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8))
    _futures: "list[Future[Done]]" = field(default_factory=list)

    @property
    def hosts(self) -> list[Host]:
        return list(self.network.hosts.values())[: len(self.folders)]

    def begin(self) -> "Drivers":
        seed = None if any(word.startswith("workload=script") for word in self.overrides) else "0"
        client.server(seed, ())
        for node, host in enumerate(self.hosts):
            if node != self.absent:
                self._futures.append(self._pool.submit(self._run, node, host, seed))
        return self

    def end(self, timeout_s: float = 120) -> list[Done]:
        """Return how each driver ended, by node."""
        try:
            return [future.result(timeout=timeout_s) for future in self._futures]
        finally:
            self._pool.shutdown(wait=False)

    def driver(self, node: int) -> psutil.Process:
        """Return the driver on a host: of the processes there, the one that was started from outside."""
        host = self.hosts[node]
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            here = {process.pid: process for process in host.processes()}
            for process in here.values():
                if process.ppid() not in here:
                    return process
            time.sleep(0.02)
        raise AssertionError(f"no driver on {host.name}")

    def ranks(self, node: int) -> list[psutil.Process]:
        """Return the ranks on a host, in order."""
        return sorted(self.driver(node).children(), key=lambda process: process.pid)

    def _run(self, node: int, host: Host, seed: str | None) -> Done:
        second_look = [] if self.command != "check" or "second_look" in str(self.overrides) else ["second_look=false"]
        own = self.more[node] if self.more else []
        cwd, words = self.folders[node], [*self.overrides, *second_look, *own]
        extra = self.extra[node] if self.extra else {}
        done = client.run(
            [f"ddp_repro.{self.command}", *words],
            cwd=cwd,
            environ=environment({**self._place(node), **extra}),
            timeout_s=180,
            hash_seed=seed,
            host=host.holder.pid,
        )
        verdict = read_verdict(cwd, words)
        return Done(code=done.returncode, stdout=done.stdout, stderr=done.stderr, verdict=verdict)

    def _place(self, node: int) -> dict[str, str]:
        nodes = str(len(self.folders))
        return {
            "RANK": str(node),
            "LOCAL_RANK": "0",
            "GROUP_RANK": str(node),
            "WORLD_SIZE": nodes,
            "LOCAL_WORLD_SIZE": "1",
            "GROUP_WORLD_SIZE": nodes,
            "MASTER_ADDR": self.hosts[0].address,
            "MASTER_PORT": str(self.port),
            "TORCHELASTIC_RUN_ID": "test",
            "TORCHELASTIC_RESTART_COUNT": "0",
        }


def torchrun(network: Network, node: int, *words: str) -> list[str]:
    """Return the command line of torchrun on one of all hosts, with static rendezvous."""
    hosts = list(network.hosts.values())
    where = ["--node-rank", str(node), "--master-addr", hosts[0].address, "--master-port", str(PORT)]
    nodes = ["--nnodes", str(len(hosts)), "--nproc-per-node", "1"]
    return [sys.executable, "-m", "torch.distributed.run", *nodes, *where, "-m", *words]
