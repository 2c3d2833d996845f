"""A real slurmctld of one's own: simulated nodes that are never contacted, in a directory that goes away with it."""

import functools
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("slurmctld", "slurm-client")
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool
SlurmctldPidFile={directory}/slurmctld.pid
SlurmctldLogFile={directory}/slurmctld.log
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
{topology}
SchedulerType=sched/backfill
SchedulerParameters=max_switch_wait=1,bf_interval=1,bf_max_job_test=10000,default_queue_depth=10000,sched_interval=1,batch_sched_delay=0
MaxArraySize=100001
MaxJobCount=100000
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SlurmdTimeout=0
PrivateData=cloud
# Power saving that does nothing: nodes stay idle and usable for ever, an allocated job keeps configuring.
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=-1
ResumeTimeout=65000
SuspendTimeout=1
ResumeRate=0
SuspendRate=0
TreeWidth=65533
NodeName={nodes} CPUs=8 State=CLOUD
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@functools.cache
def why_not() -> str | None:
    """Install the packages where they are missing; say why there can be no controller, None where there can."""
    if os.geteuid() != 0:
        return "a private slurmctld is started as root here, and packages are installed by root"
    if _installed():
        return None
    if not shutil.which("apt-get"):
        return "slurmctld is not installed and there is no apt-get to install it"
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *PACKAGES]
    for command in (install, ["apt-get", "update", "-q"], install):
        done = subprocess.run(
            command,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if _installed():
            return None
    return f"Debian's slurm packages cannot be installed: {done.stderr.strip()[-200:]}"


def _installed() -> bool:
    return all(shutil.which(c) for c in ("slurmctld", "scontrol", "sbatch"))


@dataclass(frozen=True)
class Controller:
    """A running slurmctld, asked through its own clients."""

    directory: Path

    def run(self, *command: str, environment: Mapping[str, str] | None = None) -> str:
        """Run a client; return what it prints, raise with what it complains of."""
        env = {**os.environ, "SLURM_CONF": str(self.directory / "slurm.conf"), **(environment or {})}
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=30, check=False, cwd=self.directory
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def submit(self, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
        """Submit a job that sleeps; return its number."""
        done = self.run("sbatch", "--parsable", *arguments, "--wrap=sleep 600", environment=environment)
        return done.strip().partition(";")[0]

    def submit_on_trial(self, *arguments: str) -> str:
        """Ask when a job would start, and return all that sbatch prints of it."""
        done = subprocess.run(
            ["sbatch", "--test-only", *arguments, "--wrap=sleep 600"],
            env={**os.environ, "SLURM_CONF": str(self.directory / "slurm.conf")},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr.strip() or done.stdout.strip())
        return done.stderr + done.stdout

    def allocated(self, job: str, seconds: float = 20) -> str:
        """Return the hostlist that a job holds, waiting until it holds one."""
        end = time.monotonic() + seconds
        while True:
            shown = self.run("scontrol", "show", "job", job, "-o")
            found = re.search(r" NodeList=(\S+)", shown)
            if found and found[1] != "(null)":
                return found[1]
            if time.monotonic() > end:
                raise RuntimeError(f"job {job} is not allocated: {shown}")
            time.sleep(0.1)

    def log(self) -> str:
        """Return what the controller has logged."""
        return (self.directory / "slurmctld.log").read_text()


@contextmanager
def controller(
    directory: Path,
    nodes: str,
    topology: str,
    plugin: str = "topology/tree",
    *,
    files: Mapping[str, str] | None = None,
    more: str = "",
) -> Iterator[Controller]:
    """Start a slurmctld that reads a topology.conf, and stop it at the end whatever happens.

    `files` are put beside its configuration, `more` are lines of it.

    Raises
    ------
    RuntimeError
        Holds the controller's log, if it does not come up.
    """
    (directory / "state").mkdir(parents=True)
    (directory / "topology.conf").write_text(topology)
    for name, text in (files or {}).items():
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)
    port, node_port = _free_ports()
    (directory / "slurm.conf").write_text(
        CONFIGURATION.format(
            host=socket.gethostname().partition(".")[0],
            port=port,
            node_port=node_port,
            directory=directory,
            topology=f"TopologyPlugin={plugin}\n{more}",
            nodes=nodes,
        )
    )
    slurm = Controller(directory)
    with (directory / "out").open("w") as out:
        process = subprocess.Popen(
            ["slurmctld", "-D", "-c", "-f", str(directory / "slurm.conf")], stdout=out, stderr=out
        )
    try:
        _wait(slurm, process)
        yield slurm
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(slurm: Controller, process: subprocess.Popen[bytes], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while "UP" not in _ping(slurm):
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError((slurm.directory / "out").read_text()[-3000:])
        time.sleep(0.1)


def _ping(slurm: Controller) -> str:
    try:
        return slurm.run("scontrol", "ping")
    except RuntimeError:
        return ""


def _free_ports() -> tuple[int, int]:
    with socket.socket() as a, socket.socket() as b:
        a.bind(("127.0.0.1", 0))
        b.bind(("127.0.0.1", 0))
        return a.getsockname()[1], b.getsockname()[1]
