"""A real Slurm on this one machine: its own munge, controller and nodes, under a folder and ports of its own.

Nothing of it lies under /etc or /run, and nothing outlives the process that started it. Every node is a ``slurmd`` in
namespaces of its own for mounts and host name, with an address of the loopback network: jobs on it see another host.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

PROGRAMS: Final = ("munged", "munge", "slurmctld", "slurmd", "sbatch", "scontrol", "scancel", "unshare", "setpriv")
START_S: Final = 30.0
STOP_S: Final = 15.0
OVER: Final = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL")

# Run by sh: names hosts for this mount namespace, then becomes the program. $0: file of hosts, $1: own name or ""
_AS_HOST: Final = 'mount --bind "$0" /etc/hosts && { [ -z "$1" ] || hostname "$1"; } && shift && exec "$@"'


def missing() -> str:
    """Return why no cluster can be started here, or nothing."""
    if os.geteuid() != 0:
        return "a Slurm of the tests' own needs root"
    absent = [program for program in PROGRAMS if shutil.which(program) is None]
    return f"{', '.join(absent)} not installed (apt install slurm-wlm munge)" if absent else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What Slurm knows of a job: its state, and the exit code and signal that it shows."""

    id: str
    state: str
    code: int
    signal: int
    fields: Mapping[str, str]

    @property
    def is_over(self) -> bool:
        return self.state in OVER


@dataclass(slots=True, kw_only=True)
class Cluster:
    """A controller and nodes ``n1`` … until `stop`; ``cpus`` says which of this machine's processors each has."""

    cpus: Sequence[str]
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp")))
    _daemons: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def nodes(self) -> list[str]:
        return [f"n{number}" for number, _ in enumerate(self.cpus, 1)]

    @property
    def environ(self) -> dict[str, str]:
        """Return this process's environment, less what an outer Slurm says, with this cluster named."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_", "SRUN_"))}
        return {**own, "SLURM_CONF": str(self._config)}

    @property
    def _config(self) -> Path:
        return self.folder / "slurm.conf"

    def start(self) -> None:
        """Start everything and wait until all nodes are idle; raise RuntimeError with the logs where they are not."""
        for name in ("munge", "state", "log", *(f"spool.{node}" for node in self.nodes)):
            (self.folder / name).mkdir(mode=0o755)
        self.folder.chmod(0o755)  # munge trusts no socket under a folder that others could not look into
        self._start_munge()
        self._write_configuration()
        self._start("slurmctld", ["slurmctld", "-D"])
        for node, cpus in zip(self.nodes, self.cpus, strict=True):
            self._start(f"slurmd.{node}", ["taskset", "--cpu-list", cpus, "slurmd", "-D", "-N", node], host=node)
        self._await(self._all_are_idle, "the nodes did not become idle")

    def stop(self) -> None:
        """Cancel every job, end every daemon, remove the folder."""
        if "slurmctld" in self._daemons:
            with contextlib.suppress(subprocess.SubprocessError, RuntimeError):
                self.call("scancel", "--user=root")
                self._await(lambda: not self.call("squeue", "--noheader"), "jobs are left")
        left = self.processes()
        for name in reversed(self._daemons):
            _end(self._daemons[name])
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def processes(self) -> list[psutil.Process]:
        """Return the live processes of this cluster's jobs: all that carry its configuration, but for the daemons."""
        own = {daemon.pid for daemon in self._daemons.values()}
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                is_ours = process.environ().get("SLURM_CONF") == str(self._config) and process.pid not in own
                if is_ours and "SLURM_JOB_ID" in process.environ() and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def call(self, *words: str, environ: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
        """Run a client of Slurm and return what it says; raise RuntimeError with its message where it fails."""
        done = subprocess.run(
            self._as_host("", words),
            env={**self.environ, **(environ or {})},
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def submit(self, *words: str, cwd: Path, environ: Mapping[str, str] | None = None) -> str:
        """Submit a job with ``sbatch`` and return its number."""
        return self.call("sbatch", "--parsable", *words, cwd=cwd, environ=environ).partition(";")[0]

    def job(self, number: str) -> Job:
        """Return what Slurm knows of a job, of an array's task by ``<job>_<task>``."""
        words = self.call("scontrol", "show", "job", "--oneliner", number).split()
        fields = dict(word.partition("=")[::2] for word in words if "=" in word)
        code, _, number_of_signal = fields["ExitCode"].partition(":")
        return Job(id=number, state=fields["JobState"], code=int(code), signal=int(number_of_signal), fields=fields)

    def wait(self, number: str, *, timeout_s: float) -> Job:
        """Return the job once it is over. ``sbatch --wait`` looks after 2, 10 and 42 s only."""
        deadline = time.monotonic() + timeout_s
        while not (job := self.job(number)).is_over:
            if time.monotonic() > deadline:
                raise RuntimeError(f"job {number} is {job.state} after {timeout_s:g} s\n{self.logs()}")
            time.sleep(0.2)
        return job

    def logs(self) -> str:
        """Return the ends of the daemons' logs."""
        files = sorted((self.folder / "log").iterdir())
        return "\n".join(f"== {file.name}\n{file.read_text(errors='replace')[-1500:]}" for file in files)

    def _start_munge(self) -> None:
        folder = self.folder / "munge"
        (folder / "key").write_bytes(os.urandom(1024))
        (folder / "key").chmod(0o600)
        options = [f"--{name}-file={folder / name}" for name in ("key", "pid", "log", "seed")]
        self._start("munged", ["munged", "--foreground", f"--socket={folder / 'socket'}", *options], host=None)
        socket_file = f"--socket={folder / 'socket'}"
        ask = ["munge", socket_file, "--no-input"]
        self._await(
            lambda: subprocess.run(ask, capture_output=True, check=False).returncode == 0, "munge does not answer"
        )

    def _start(self, name: str, words: Sequence[str], *, host: str | None = "") -> None:
        command = list(words) if host is None else self._as_host(host, words)
        with (self.folder / "log" / f"{name}.out").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", *command],  # whatever becomes of the tests, it ends with them
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _as_host(self, host: str, words: Sequence[str]) -> list[str]:
        namespaces = ["--mount", "--uts"] if host else ["--mount"]
        return ["unshare", *namespaces, "--", "sh", "-c", _AS_HOST, str(self.folder / "hosts"), host, *words]

    def _await(self, is_so: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + START_S
        while not is_so():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{otherwise}\n{self.logs()}")
            time.sleep(0.05)

    def _all_are_idle(self) -> bool:
        for name, daemon in self._daemons.items():
            if daemon.poll() is not None:
                raise RuntimeError(f"{name} ended with {daemon.returncode}\n{self.logs()}")
        with contextlib.suppress(RuntimeError):
            return self.call("sinfo", "--noheader", "--states=idle", "--format=%D") == str(len(self.nodes))
        return False

    def _write_configuration(self) -> None:
        own, ports = socket.gethostname().partition(".")[0], _free_ports(1 + len(self.nodes))
        addresses = {node: f"127.77.0.{number}" for number, node in enumerate(self.nodes, 1)}
        hosts = [f"127.0.0.1 localhost {own}", *(f"{address} {node}" for node, address in addresses.items())]
        (self.folder / "hosts").write_text("\n".join(hosts) + "\n")
        # Slurm 22.05 sets up its cgroups even where nothing uses them; naming a version skips the search for one.
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        nodes = [
            f"NodeName={node} NodeHostname={node} NodeAddr={addresses[node]} Port={port} CPUs=8 RealMemory=16000"
            for node, port in zip(self.nodes, ports[1:], strict=True)
        ]
        settings = _SETTINGS.format(folder=self.folder, host=own, port=ports[0])
        partition = "PartitionName=tests Nodes=ALL Default=YES MaxTime=INFINITE State=UP"
        self._config.write_text("\n".join([settings.strip(), *nodes, partition]) + "\n")


_SETTINGS: Final = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
MailProg=/bin/true
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=500
SchedulerParameters=batch_sched_delay=0,sched_interval=1
SchedulerType=sched/backfill
SlurmdParameters=config_overrides
ReturnToService=2
MinJobAge=3600
KillWait=30
SlurmdTimeout=60
"""


def _free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on now; held together, so that they differ."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _end(daemon: "subprocess.Popen[bytes]") -> None:
    daemon.send_signal(signal.SIGTERM)
    try:
        daemon.wait(STOP_S)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()
