"""Put `planner.place` behind HTTP for schedulers: a Slurm job_submit script and a Kubernetes extender.

Start it with `scripts/docs/examples_place_service.py TOPOLOGY [PORT]`; it answers on 127.0.0.1:

    POST /place      {"job": {...}, "busy": ["n1"]}       the placement (JSON); "order": "name" as on the command line
    POST /slurm      {"mesh": ...}, a job                 its number of nodes and its hostlist (text)
    POST /busy       "n[1-2]" or ["n1", "n2"]             nodes that are taken now; /free gives them back
    POST /filter     ExtenderArgs of kube-scheduler       ExtenderFilterResult: the one node of the pod's rank; a pod
                                                          without the annotation planner/job keeps all its nodes

docs/placement-calls.md has a job_submit.lua, a prolog and a scheduler's configuration that call it.
"""

import json
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import SHUT_RDWR
from threading import BoundedSemaphore, Lock, Timer
from typing import Any

from planner.cluster.hostlists import fold_names, read_hosts
from planner.cluster.job import Job, read_job
from planner.cluster.placement import Placement
from planner.errors import InputError, PlannerError
from planner.files import parse_json
from planner.formats.cluster_files import read_topology
from planner.scheduling.warm_cluster import Cluster

SECONDS = 0.1  # what a scheduler may wait for a proof; a placement comes back in any case
MAX_BODY = 8 << 20  # bytes of a request: 50,000 names of nodes are 1 MB
SILENT_SECONDS = 10.0  # that a client may send nothing
REQUEST_SECONDS = 30.0  # that a request may take in all
MAX_CLIENTS = 64  # at once; more wait in the queue of the system
PROMISE_SECONDS = 600.0  # that a node is kept for a pod that has not asked, or that asked and did not start
Key = tuple[str, str, str]  # namespace, name and identity of a job
ANNOTATION, INDEX = "planner/job", "batch.kubernetes.io/job-completion-index"


@dataclass(slots=True)
class Promise:
    """The nodes of a job, since when they are kept for it, when the pod of each rank last asked, and ranks given up."""

    placed: Placement
    since: float
    asked: dict[int, float] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)

    @property
    def kept(self) -> dict[int, str]:
        """The nodes that are still its own, by rank."""
        return {rank: n for rank, n in enumerate(self.placed.nodes) if rank not in self.lost}


class Service:
    """A warm cluster, and the jobs that pods were promised nodes for."""

    def __init__(self, topology: Path) -> None:
        self.cluster = Cluster(read_topology(topology))
        self.cluster.warm_up()
        self.promised: dict[Key, Promise] = {}
        self.lock = Lock()

    def answer(self, path: str, data: Any) -> Any:
        """Return the answer to one request."""
        if path == "/place":
            options = {"busy": data.get("busy", ()), "order": data.get("order", "any")}
            placed = self.cluster.place(job_of(data["job"]), **options, time_limit=SECONDS)
            return {**placed.model_dump(mode="json"), "hostlist": fold_names(placed.nodes)}
        if path == "/slurm":
            placed = self.cluster.place(job_of(data), time_limit=SECONDS)
            if not placed.nodes:
                raise InputError(placed.reason)
            return f"{len(placed.nodes)} {fold_names(placed.nodes)}\n"
        if path in ("/busy", "/free"):
            nodes = read_hosts(data, path) if isinstance(data, str) else data
            (self.cluster.set_busy if path == "/busy" else self.freed)(nodes)
            return {"busy": len(self.cluster.busy)}
        if path == "/filter":
            return self.extended(data)
        raise PlannerError(f"{path}: must be one of /place, /slurm, /busy, /free, /filter")

    def extended(self, data: dict[str, Any]) -> dict[str, Any]:
        """Answer kube-scheduler, which names nodes where it caches them and else sends them whole.

        A pod that is none of ours keeps every node; what is wrong with one of ours is its error alone.
        """
        items = (data.get("Nodes") or {}).get("items") or []
        offered = data.get("NodeNames") or [item["metadata"]["name"] for item in items]
        pod = data["Pod"]["metadata"]
        if ANNOTATION not in (pod.get("annotations") or {}):
            chosen, failed, error = offered, dict[str, str](), ""
        else:
            try:
                chosen, failed, error = self.filtered(pod, offered)
            except PlannerError as problem:
                chosen, failed, error = [], {}, str(problem)
        own = set(chosen)
        nodes = {"Nodes": {"items": [item for item in items if item["metadata"]["name"] in own]}} if items else {}
        return {"NodeNames": chosen, "FailedNodes": failed, "Error": error, **nodes}

    def filtered(self, pod: dict[str, Any], offered: list[str]) -> tuple[list[str], dict[str, str], str]:
        """Place the pod's job with its first pod, and offer each pod the node of its rank."""
        job = job_of(parse_json(pod["annotations"][ANNOTATION], ANNOTATION))
        index = (pod.get("labels") or {}).get(INDEX, (pod.get("annotations") or {}).get(INDEX, ""))
        if not (isinstance(index, str) and index.isascii() and index.isdecimal()):
            raise InputError(f"{INDEX}: must be the rank of the pod (is {index!r}); make the job an indexed one")
        rank, key = int(index), owner_of(pod, job)
        with self.lock:
            self.forget(offered, key)
            promise = self.promised.get(key)
            if promise is None:
                self.supersede(key)
                placed = self.cluster.place(job, time_limit=SECONDS)
                if not placed.nodes:
                    return [], {}, placed.reason
                self.cluster.set_busy(placed.nodes)
                promise = self.promised[key] = Promise(placed, time.monotonic())
            nodes = promise.placed.nodes
            if not 0 <= rank < len(nodes):
                raise InputError(f"job-completion-index {rank}: must be from 0 to {len(nodes) - 1}; correct it")
            node = nodes[rank]
            if rank in promise.lost and node in self.cluster.busy:
                return [], {}, f"rank {rank}: {node} was given back and taken by others; submit the job again"
            promise.lost.discard(rank)
            self.cluster.set_busy([node])
            promise.asked[rank] = time.monotonic()
        chosen = [n for n in offered if n == node]
        return chosen, {n: f"rank {rank} runs on {node}" for n in offered if n != node}, ""

    def forget(self, offered: Iterable[str] = (), asking: Key | None = None) -> None:
        """Give back nodes whose pods never asked in time, and those that are offered again long after theirs did.

        The scheduler offers an own pod, which takes whole nodes, none on which another runs: what it offers has no pod.
        """
        now, again = time.monotonic(), set(offered)
        for key, promise in list(self.promised.items()):
            late = {
                rank
                for rank, node in promise.kept.items()
                if now - promise.asked.get(rank, promise.since) > PROMISE_SECONDS
                and (rank not in promise.asked or (node in again and key != asking))
            }
            self.cluster.set_free(promise.kept[rank] for rank in late)
            promise.lost |= late
            if not promise.kept:
                del self.promised[key]

    def supersede(self, key: Key) -> None:
        """Give back the nodes of a job that another of the same name has followed: no two are there at once."""
        for other in [k for k in self.promised if k[:2] == key[:2] and k != key]:
            self.cluster.set_free(self.promised.pop(other).kept.values())

    def freed(self, nodes: Iterable[str]) -> None:
        """Give nodes back, and forget the jobs that ran on them."""
        gone = set(nodes)
        self.cluster.set_free(gone)
        with self.lock:
            self.promised = {k: p for k, p in self.promised.items() if gone.isdisjoint(p.kept.values())}


def owner_of(pod: dict[str, Any], job: Job) -> Key:
    """Return the namespace and name of a pod's job, and the identity that no later job of that name has."""
    owners = pod.get("ownerReferences") or [{}]
    return str(pod.get("namespace") or ""), str(owners[0].get("name") or job.name), str(owners[0].get("uid") or "")


def job_of(data: Any) -> Job:
    """Read a job from a request; a text would be the name of a file, which no request opens."""
    if not isinstance(data, dict):
        raise InputError(f"job: must be an object (is {type(data).__name__}); see `planner schema job`")
    return read_job(data)


def handler_of(service: Service) -> type[BaseHTTPRequestHandler]:
    """Return the handler of one service's requests."""

    class Handler(BaseHTTPRequestHandler):
        timeout = SILENT_SECONDS  # of each wait for bytes

        def setup(self) -> None:
            """Begin the time of the request."""
            super().setup()
            self.end = Timer(REQUEST_SECONDS, self.cut)
            self.end.daemon = True
            self.end.start()

        def cut(self) -> None:
            """Close the connection of a request that takes too long."""
            with suppress(OSError):  # it ended by itself
                self.connection.shutdown(SHUT_RDWR)

        def finish(self) -> None:
            """End its time."""
            self.end.cancel()
            super().finish()

        def do_POST(self) -> None:
            """Answer with JSON; what cannot be used is named with status 400, what is too long with 413."""
            length = self.headers.get("Content-Length", "")
            if not (length.isascii() and length.isdecimal() and len(length) < 19):
                status, found = 411, {"Error": "Content-Length: must be the bytes of the body; send it"}
            elif int(length) > MAX_BODY:
                status, found = 413, {"Error": f"the body has {length} bytes, more than {MAX_BODY:,}; shorten it"}
            else:
                status, found = self.answered(int(length))
            self.close_connection = True
            body = (found if isinstance(found, str) else json.dumps(found) + "\n").encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain" if isinstance(found, str) else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def answered(self, length: int) -> tuple[int, Any]:
            """Read the body and return status and answer."""
            try:
                data = parse_json(self.rfile.read(length).decode(), self.path)
                return 200, service.answer(self.path, data)
            except TimeoutError:
                return 408, {"Error": f"the body did not come within {SILENT_SECONDS:g} s; send it whole"}
            except (PlannerError, AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
                return 400, {"Error": f"{type(error).__name__}: {error}"}

    return Handler


class Server(ThreadingHTTPServer):
    """A thread for each client, so many at once and no more: silent ones do not fill the memory."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], service: Service) -> None:
        super().__init__(address, handler_of(service))
        self.places = BoundedSemaphore(MAX_CLIENTS)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Wait for a place, then answer in a thread."""
        self.places.acquire()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self.places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and give the place back."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.places.release()


def main() -> None:
    """Serve until interrupted."""
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 8765
    Server(("127.0.0.1", port), Service(Path(sys.argv[1]))).serve_forever()


if __name__ == "__main__":
    main()
