"""Examples of `planner.place` inside schedulers: a warm cluster behind HTTP, for a Slurm job_submit script and a Kubernetes extender.

Start it with `scripts/examples_place_service.py TOPOLOGY [PORT]`; it answers on 127.0.0.1:

    POST /place      {"job": {...}, "busy": ["n1"]}       the placement (JSON)
    POST /busy       ["n1", "n2"]                         nodes that are taken now; /free gives them back
    POST /filter     ExtenderArgs of kube-scheduler       ExtenderFilterResult: the one node of the pod's rank

Slurm: a job_submit.lua asks /place and sets `job_desc.req_nodes` to the answer's `hostlist` and `job_desc.min_nodes` to the
number of its `nodes`; the ranks follow with SLURM_HOSTFILE and `srun -m arbitrary`. A prolog posts the nodes of the job to
/busy, an epilog to /free. Kubernetes: pods carry the job as JSON in the annotation `planner/job` and their rank in the label
`batch.kubernetes.io/job-completion-index`; the scheduler's configuration names this service as an extender with
`filterVerb: filter` and `nodeCacheCapable: true`.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

from planner.cluster import Cluster
from planner.errors import PlannerError
from planner.formats.read import read_topology
from planner.job import read_job
from planner.physics.hostlist import fold_names
from planner.placement import Placement

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
        if path in ("/busy", "/free"):
            (self.cluster.set_busy if path == "/busy" else self.cluster.set_free)(data)
            return {"busy": len(self.cluster.busy)}
        if path == "/filter":
            return self.filtered(data["Pod"]["metadata"], data.get("NodeNames") or [])
        raise PlannerError(f"{path}: must be one of /place, /busy, /free, /filter")

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
            body = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
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
