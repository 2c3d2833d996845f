"""Put `planner.place` behind HTTP for schedulers: a Slurm job_submit script and a Kubernetes extender.

Start it with `scripts/docs/examples_place_service.py TOPOLOGY [PORT]`; it answers on 127.0.0.1:

    POST /place      {"job": {...}, "busy": ["n1"]}       the placement (JSON)
    POST /slurm      {"mesh": ...}, a job                 its number of nodes and its hostlist (text)
    POST /busy       "n[1-2]" or ["n1", "n2"]             nodes that are taken now; /free gives them back
    POST /filter     ExtenderArgs of kube-scheduler       ExtenderFilterResult: the one node of the pod's rank

docs/placement-calls.md has a job_submit.lua, a prolog and a scheduler's configuration that call it.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

from planner.cluster.hostlist import fold_names, read_hosts
from planner.cluster.job import read_job
from planner.cluster.placement import Placement
from planner.errors import InputError, PlannerError
from planner.formats.read import read_topology
from planner.scheduling.session import Cluster

SECONDS = 0.1  # what a scheduler may wait for a proof; a placement comes back in any case


class Service:
    """A warm cluster, and the jobs that pods were promised nodes for."""

    def __init__(self, topology: Path) -> None:
        self.cluster = Cluster(read_topology(topology))
        self.cluster.warm_up()
        self.promised: dict[str, Placement] = {}
        self.lock = Lock()

    def answer(self, path: str, data: Any) -> Any:
        """Return the answer to one request."""
        if path == "/place":
            placed = self.cluster.place(read_job(data["job"]), busy=data.get("busy", ()), time_limit=SECONDS)
            return {**placed.model_dump(mode="json"), "hostlist": fold_names(placed.nodes)}
        if path == "/slurm":
            placed = self.cluster.place(read_job(data), time_limit=SECONDS)
            if not placed.nodes:
                raise InputError(placed.reason)
            return f"{len(placed.nodes)} {fold_names(placed.nodes)}\n"
        if path in ("/busy", "/free"):
            nodes = read_hosts(data, path) if isinstance(data, str) else data
            (self.cluster.set_busy if path == "/busy" else self.cluster.set_free)(nodes)
            return {"busy": len(self.cluster.busy)}
        if path == "/filter":
            return self.filtered(data["Pod"]["metadata"], data.get("NodeNames") or [])
        raise PlannerError(f"{path}: must be one of /place, /slurm, /busy, /free, /filter")

    def filtered(self, pod: dict[str, Any], offered: list[str]) -> dict[str, Any]:
        """Place the pod's job with its first pod, and offer each pod the node of its rank."""
        job = read_job(json.loads(pod["annotations"]["planner/job"]))
        rank = int(pod["labels"]["batch.kubernetes.io/job-completion-index"])
        with self.lock:
            placed = self.promised.get(job.name)
            if placed is None:
                placed = self.cluster.place(job, time_limit=SECONDS)
                if not placed.nodes:
                    return {"NodeNames": [], "FailedNodes": {}, "Error": placed.reason}
                self.cluster.set_busy(placed.nodes)
                self.promised[job.name] = placed
        node = placed.nodes[rank]
        return {
            "NodeNames": [n for n in offered if n == node],
            "FailedNodes": {n: f"rank {rank} runs on {node}" for n in offered if n != node},
            "Error": "",
        }


def handler_of(service: Service) -> type[BaseHTTPRequestHandler]:
    """Return the handler of one service's requests."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            """Answer with JSON; what cannot be used is named with status 400."""
            try:
                data = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
                status, found = 200, service.answer(self.path, data)
            except (PlannerError, KeyError, IndexError, TypeError, ValueError) as error:
                status, found = 400, {"Error": f"{type(error).__name__}: {error}"}
            body = (found if isinstance(found, str) else json.dumps(found) + "\n").encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain" if isinstance(found, str) else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def main() -> None:
    """Serve until interrupted."""
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 8765
    ThreadingHTTPServer(("127.0.0.1", port), handler_of(Service(Path(sys.argv[1])))).serve_forever()


if __name__ == "__main__":
    main()
