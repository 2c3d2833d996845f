"""Running jobs as Slurm prints them: `squeue --json`, `scontrol show job --json`, and `scontrol show job`."""

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.files import parse_json, read_text
from planner.formats.source import Hostlists

# Base states and flags of a job (https://slurm.schedmd.com/job_state_codes.html), which may have both. Of HOLDING each
# keeps its nodes, also beside an ended state; those of NEITHER leave it to the state beside them.
HOLDING = "RUNNING SUSPENDED COMPLETING CONFIGURING POWER_UP_NODE RESIZING SIGNALING STAGE_OUT STOPPED"
ENDED = "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED REVOKED TIMEOUT"
NEITHER = (
    "EXPEDITING LAUNCH_FAILED RECONFIG_FAIL REQUEUED REQUEUE_FED REQUEUE_HOLD RESV_DEL_HOLD SPECIAL_EXIT UPDATE_DB"
)
HOLDS: Mapping[str, bool | None] = {
    **dict.fromkeys(HOLDING.split(), True),
    **dict.fromkeys(("PENDING", *ENDED.split()), False),
    **dict.fromkeys(NEITHER.split()),
}
REMEDY = "give what `squeue --json` or `scontrol show job` prints"
_PAIR = re.compile(r"(\w+)=(\S*)")
_STATES = re.compile(r"\bJobState=(.*?)(?=\s+\w+=|\s*$)", re.MULTILINE)  # several are parted by blanks


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job with its nodes; they are in the order of the list, which is that of their names."""

    name: str
    nodes: tuple[str, ...]
    priority: int


def read_running(path: Path) -> list[RunningJob]:
    """Read the jobs of a file that hold nodes; those that wait or have ended are left out.

    A state that Slurm does not document is named in a warning; such a job holds the nodes that it lists.

    Raises
    ------
    InputError
        Names file, job or JSON path, value and remedy.
    """
    text, where = read_text(path, REMEDY), str(path)
    hostlists = Hostlists(where)
    rows = _json_rows(parse_json(text, where), where) if text.lstrip()[:1] in "{[" else _text_rows(text, where)
    jobs = [_job(row, hostlists, at) for at, row in rows if _holds_nodes(row, where, at)]
    names = [j.name for j in jobs]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{where}: job {name!r} stands twice; keep one")
    return jobs


def jobs_in(data: Any) -> list[Any] | None:
    """Return the jobs of what Slurm's JSON says; None where it is something else."""
    jobs = data.get("jobs") if isinstance(data, Mapping) else None
    return jobs if isinstance(jobs, list) else None


def _json_rows(data: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the jobs of Slurm's JSON by the keys of its text."""
    jobs = jobs_in(data)
    if jobs is None:
        raise InputError(f"{where}: jobs: is missing; {REMEDY}")
    for i, job in enumerate(jobs):
        at = f"jobs[{i}]"
        if not isinstance(job, Mapping):
            raise InputError(f"{where}: {at}: must be an object (is {job!r}); {REMEDY}")
        states = job.get("job_state", "RUNNING")
        states = states if isinstance(states, list) else [states]
        yield (
            at,
            {
                "JobId": job.get("job_id"),
                "JobName": job.get("name"),
                "JobState": " ".join(map(str, states)),
                "NodeList": job.get("nodes"),
                "Priority": _number(job.get("priority")),
            },
        )


def _number(value: Any) -> Any:
    """Return a number of Slurm's JSON, which may be {"set": true, "number": n}."""
    return value.get("number") if isinstance(value, Mapping) else value


def _text_rows(text: str, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the jobs of `scontrol show job`: each begins with JobId."""
    found = False
    for i, part in enumerate(re.split(r"(?m)^(?=JobId=)", text)):
        pairs = dict(_PAIR.findall(part))
        if "JobId" in pairs:
            found = True
            states = _STATES.search(part)
            yield f"job {pairs['JobId']}", pairs | ({"JobState": states[1]} if states else {})
        elif part.strip() and i == 0 and "No jobs" not in part:
            break
    if not found and "No jobs" not in text:
        raise InputError(f"{where}: has no JobId=; {REMEDY}")


def _holds_nodes(row: Mapping[str, Any], where: str, at: str) -> bool:
    """Return whether a job holds its nodes by its states; warn of a state that is none of Slurm's."""
    states = re.findall(r"[^\s,|+]+", str(row.get("JobState", "RUNNING")).upper())
    unknown = next((s for s in states if s not in HOLDS), None)
    if unknown is not None:
        text = "%s: %s: state %r is none of Slurm's; it is taken to hold its nodes"
        logging.getLogger("planner").warning(text, where, at, unknown)
    kept = {HOLDS.get(s) for s in states}
    listed = row.get("NodeList") not in (None, "", "(null)")
    return True in kept or (listed and (unknown is not None or False not in kept))


def _job(row: Mapping[str, Any], hostlists: Hostlists, at: str) -> RunningJob:
    """Return one job; its name and its number together are its own."""
    nodes, number = row.get("NodeList"), row.get("JobId")
    if not isinstance(nodes, str) or nodes in ("", "(null)"):
        raise InputError(f"{hostlists.source}: {at}: a running job has no nodes (is {nodes!r}); {REMEDY}")
    priority = row.get("Priority")
    cost = int(str(priority)) if re.fullmatch(r"[0-9]{1,18}", str(priority)) else 1
    name = f"{row['JobName']}-{number}" if row.get("JobName") else str(number)
    return RunningJob(name=name[:200], nodes=hostlists.names(at, nodes), priority=cost)
