"""Hosts of their own on this machine: network, hostname, /etc/hosts and mounts, joined by a bridge. Root only.

Each host is a set of namespaces, held by a process that ends with this one: nothing of it has a name elsewhere, so two
test runs never meet, and nothing is left, however the tests end.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

NAMESPACES = ("net", "uts", "mnt")
NET = "10.77.0"
INTERFACE = "eth0"
_TOOLS = ("ip", "nsenter", "unshare", "setpriv", "mount")


def missing() -> str:
    """Return why there can be no hosts here; empty where there can."""
    if os.geteuid() != 0:
        return "hosts of their own need root"
    absent = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if absent:
        return f"hosts of their own need {', '.join(absent)}"
    links = "ip link add name br0 type bridge && ip link add name one type veth peer name other"
    attempt = subprocess.run(
        ["unshare", "--net", "--uts", "--mount", "sh", "-c", links], capture_output=True, check=False
    )
    return "" if attempt.returncode == 0 else f"no hosts can be made here: {attempt.stderr.decode().strip()}"


@dataclass(frozen=True)
class Host:
    """One host; ``holder`` is the process that holds its namespaces."""

    name: str
    address: str
    holder: "subprocess.Popen[bytes]"

    def entering(self, *command: str) -> list[str]:
        """Return the command line that runs ``command`` there, in the folder that it is started in."""
        spaces = [f"--{space}" for space in ("net", "uts", "mount")]
        here = ["sh", "-c", 'cd -- "$OLD" && unset OLD && exec "$@"', "sh"]
        return ["nsenter", "--target", str(self.holder.pid), *spaces, *here, *command]

    def start(
        self, command: Sequence[str], *, cwd: Path, environ: Mapping[str, str], out: Path
    ) -> "subprocess.Popen[bytes]":
        """Start a command there; what it says goes to the files ``out``.out and ``out``.err."""
        with out.with_suffix(".out").open("wb") as stdout, out.with_suffix(".err").open("wb") as stderr:
            return subprocess.Popen(
                self.entering(*command),
                env={**environ, "OLD": str(cwd)},
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
            )

    def run(self, *command: str) -> str:
        """Run a short command there and return what it printed."""
        environ = {**os.environ, "OLD": "/"}
        return subprocess.run(self.entering(*command), env=environ, capture_output=True, check=True, text=True).stdout

    def mount_own(self, folder: Path) -> None:
        """Mount a file system of this host's own on a folder that others see too."""
        self.run("mount", "-t", "tmpfs", "tmpfs", str(folder))

    def processes(self) -> list[psutil.Process]:
        """Return what runs on this host, but for what holds it."""
        found = []
        own = _network_of(self.holder.pid)
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                is_here = process.pid != self.holder.pid and _network_of(process.pid) == own
                if is_here and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found


class Network:
    """A bridge and the hosts that hang on it."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._folder = folder
        self._holders: list[subprocess.Popen[bytes]] = []
        self.hosts: dict[str, Host] = {}
        try:
            self._switch = self._hold("switch", "")
            self._on_switch("link", "add", "br0", "type", "bridge", "stp_state", "0", "forward_delay", "0")
            self._on_switch("link", "set", "br0", "up")
            addresses = {name: f"{NET}.{number}" for number, name in enumerate(names, 1)}
            for name, address in addresses.items():
                self.hosts[name] = self._plug(name, address, addresses)
        except BaseException:
            self.close()
            raise

    def cut(self, name: str) -> None:
        """Pull the cable of a host at the switch: what it sends is lost, and no one is told."""
        self._on_switch("link", "set", name, "down")

    def plug(self, name: str) -> None:
        """Put the cable back."""
        self._on_switch("link", "set", name, "up")

    def rename(self, name: str, address: str) -> None:
        """Have a host's own name mean another address to it, as Debian's installer does."""
        file = self._folder / f"{name}.hosts"  # bound over /etc/hosts: it must stay the same file
        lines = [line for line in file.read_text().splitlines() if not line.endswith(f" {name}")]
        file.write_text("\n".join([*lines, f"{address} {name}", ""]))

    def close(self) -> None:
        """End everything on the hosts, and the hosts."""
        for host in self.hosts.values():
            for process in host.processes():
                with suppress(psutil.Error):
                    process.kill()
        for holder in self._holders:
            holder.kill()
            holder.wait()

    def _plug(self, name: str, address: str, addresses: Mapping[str, str]) -> Host:
        known = "".join(f"{other} {host}\n" for host, other in addresses.items())
        holder = self._hold(name, f"127.0.0.1 localhost\n{known}")
        host = Host(name=name, address=address, holder=holder)
        self._on_switch("link", "add", name, "type", "veth", "peer", "name", INTERFACE, "netns", str(holder.pid))
        self._on_switch("link", "set", name, "master", "br0", "up")
        host.run("ip", "link", "set", "lo", "up")
        host.run("ip", "addr", "add", f"{address}/24", "dev", INTERFACE)
        host.run("ip", "link", "set", INTERFACE, "up")
        return host

    def _hold(self, name: str, hosts: str) -> "subprocess.Popen[bytes]":
        """Start the process that holds a host's namespaces; unknown names fail at once, since there is no DNS."""
        ready = self._folder / f"{name}.ready"
        for file, content in (("hosts", hosts), ("resolv", "")):
            (self._folder / f"{name}.{file}").write_text(content)
        script = (
            'hostname "$0" && mount --bind "$1.hosts" /etc/hosts '
            '&& { [ ! -e /etc/resolv.conf ] || mount --bind "$1.resolv" /etc/resolv.conf; } '
            '&& : >"$1.ready" && exec sleep infinity'
        )
        unshare = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--uts", "--mount"]
        holder = subprocess.Popen(
            [*unshare, "sh", "-c", script, name, str(self._folder / name)],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._holders.append(holder)
        deadline = time.monotonic() + 10
        while not ready.exists():
            assert holder.poll() is None, f"the host {name} could not be made"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return holder

    def _on_switch(self, *arguments: str) -> None:
        switch = ["nsenter", "--target", str(self._switch.pid), "--net", "ip"]
        subprocess.run([*switch, *arguments], check=True, capture_output=True)


def _network_of(pid: int) -> int:
    return Path(f"/proc/{pid}/ns/net").stat().st_ino
