"""A real slurmctld of one's own: simulated nodes that are never contacted, in a directory that goes away with it."""

import functools
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("slurmctld", "slurm-client")
PROGRAMS = ("slurmctld", "scontrol", "sbatch")
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
{named}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


_POWER = re.compile(r"^(?:#.*|Suspend\w+=.*|Resume\w+=.*|SlurmdTimeout=.*)\n", re.MULTILINE)


@functools.cache
def why_not(daemons: bool = False) -> str | None:
    """Install the packages where they are missing; say why there can be no controller, None where there can."""
    programs, packages = [*PROGRAMS, *["slurmd"] * daemons], [*PACKAGES, *["slurmd"] * daemons]

    def installed() -> bool:
        return all(shutil.which(c) for c in programs)

    if os.geteuid() != 0:
        return "a private slurmctld is started as root here, and packages are installed by root"
    if installed():
        return None
    if not shutil.which("apt-get"):
        return f"{' or '.join(programs)} is not installed and there is no apt-get to install it"
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages]
    for command in (install, ["apt-get", "update", "-q"], install):
        done = subprocess.run(
            command, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, capture_output=True, text=True,
            timeout=300, check=False,
        )  # fmt: skip
        if installed():
            return None
    return f"Debian's slurm packages cannot be installed: {done.stderr.strip()[-200:]}"


@dataclass(frozen=True)
class Controller:
    """A running slurmctld, asked through its own clients."""

    directory: Path

    def run(self, *command: str, environment: Mapping[str, str] | None = None, messages: bool = False) -> str:
        """Run a client; return what it prints, with its messages if wanted; raise with what it complains of."""
        env = {**os.environ, "SLURM_CONF": str(self.directory / "slurm.conf"), **(environment or {})}
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=30, check=False, cwd=self.directory
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stderr * messages + done.stdout

    def submit(self, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
        """Submit a job that sleeps; return its number."""
        done = self.run("sbatch", "--parsable", *arguments, "--wrap=sleep 600", environment=environment)
        return done.strip().partition(";")[0]

    def submit_on_trial(self, *arguments: str) -> str:
        """Ask when a job would start, and return all that sbatch prints of it."""
        return self.run("sbatch", "--test-only", *arguments, "--wrap=sleep 600", messages=True)

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
    daemons: Sequence[str] = (),
) -> Iterator[Controller]:
    """Start a slurmctld that reads a topology.conf, and stop it at the end whatever happens.

    `files` are put beside its configuration, `more` are lines of it. With `daemons`, the names of all nodes, each has a
    slurmd on this machine, so that steps run; else nodes are simulated.

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
    (port, node_port), host = _free_ports(2), socket.gethostname().partition(".")[0]
    named, configuration = f"NodeName={nodes} CPUs=8 State=CLOUD", CONFIGURATION
    if daemons:
        lines = (
            f"NodeName={n} NodeHostname={host} NodeAddr=127.0.0.1 Port={own} CPUs=1 State=UNKNOWN"
            for n, own in zip(daemons, _free_ports(len(daemons)), strict=True)
        )
        named = "\n".join([*lines, "SlurmdParameters=config_overrides"])
        configuration = _POWER.sub("", CONFIGURATION).replace("/spool", "/spool-%n")
        configuration = f"SlurmdPidFile={{directory}}/%n.pid\nSlurmdLogFile={{directory}}/%n.log\n{configuration}"
    (directory / "slurm.conf").write_text(
        configuration.format(
            host=host, port=port, node_port=node_port, directory=directory, topology=f"TopologyPlugin={plugin}\n{more}",
            named=named,
        )
    )  # fmt: skip
    slurm = Controller(directory)
    with (directory / "out").open("w") as out:
        process = subprocess.Popen(
            ["slurmctld", "-D", "-c", "-f", str(directory / "slurm.conf")], stdout=out, stderr=out
        )
    own = [process]
    try:
        _wait(slurm, process)
        for n in daemons:
            command = ["slurmd", "-D", "-N", n, "-f", str(directory / "slurm.conf")]
            own.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        _wait_for_nodes(slurm, len(daemons))
        yield slurm
    finally:
        for one in reversed(own):
            one.terminate()
        for one in own:
            try:
                one.wait(10)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()


def _wait_for_nodes(slurm: Controller, daemons: int, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while daemons and slurm.run("sinfo", "-h", "-N", "-o", "%t").split().count("idle") < daemons:
        if time.monotonic() > end:
            raise RuntimeError(f"not all of {daemons} nodes are idle: {slurm.run('sinfo', '-R')}")
        time.sleep(0.2)


def _wait(slurm: Controller, process: subprocess.Popen[bytes], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while True:
        with suppress(RuntimeError):
            if "UP" in slurm.run("scontrol", "ping"):
                return
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError((slurm.directory / "out").read_text()[-3000:])
        time.sleep(0.1)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in found]
