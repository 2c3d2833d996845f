"""The example service behind HTTP: limits of body and time, no file named by a request, reservations that end."""

import http.client
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import examples_place_service as example
import pytest

CONF = "SwitchName=leaf1 Nodes=n[1-4]\nSwitchName=leaf2 Nodes=n[5-8]\nSwitchName=top Switches=leaf[1-2]\n"
JOB = {"name": "a", "mesh": {"pipeline": 2, "data": 2}}


@pytest.fixture
def service(tmp_path: Path) -> example.Service:
    """Return a service over eight nodes."""
    (tmp_path / "topology.conf").write_text(CONF)
    return example.Service(tmp_path / "topology.conf")


@pytest.fixture
def port(service: example.Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Serve with short times and few places."""
    monkeypatch.setattr(example, "SILENT_SECONDS", 0.5)
    monkeypatch.setattr(example, "REQUEST_SECONDS", 1.0)
    monkeypatch.setattr(example, "MAX_CLIENTS", 8)
    server = example.Server(("127.0.0.1", 0), service)
    Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def posted(port: int, path: str, body: bytes, length: int | None = None) -> tuple[int, Any]:
    """Send a request and return status and answer."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    client.putrequest("POST", path)
    client.putheader("Content-Length", str(len(body) if length is None else length))
    client.endheaders(body)
    answer = client.getresponse()
    return answer.status, json.loads(answer.read())


def test_a_job_is_placed(port: int) -> None:
    """A request within the limits is answered."""
    status, placed = posted(port, "/place", json.dumps({"job": JOB}).encode())
    assert (status, placed["hostlist"]) == (200, "n[1-4]")


def test_no_request_names_a_file(port: int, tmp_path: Path) -> None:
    """A text in the place of a job is refused, not opened."""
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    name = str(tmp_path / "job.json")
    pod = {
        "annotations": {"planner/job": json.dumps(name)},
        "labels": {"batch.kubernetes.io/job-completion-index": "0"},
    }
    requests = {"/place": {"job": name}, "/slurm": name, "/filter": {"Pod": {"metadata": pod}}}
    for path, body in requests.items():
        status, answer = posted(port, path, json.dumps(body).encode())
        assert status == 400 and "must be an object (is str)" in answer["Error"]


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b'{"job": ' + b"9" * 5_000 + b"}", b"\xff", b"", b"null", b"3", b'{"job": NaN}']
)
def test_bodies_that_are_no_job_are_refused(port: int, body: bytes) -> None:
    """Deep JSON, long numbers and binary data are answered with status 400, and the next request is served."""
    assert posted(port, "/place", body)[0] == 400
    assert posted(port, "/place", json.dumps({"job": JOB}).encode())[0] == 200


def test_a_long_body_is_refused_unread(port: int) -> None:
    """A body beyond the limit, or of no stated length, is refused before it is read."""
    assert posted(port, "/place", b"", length=example.MAX_BODY + 1)[0] == 413
    assert posted(port, "/place", b"", length=-1)[0] == 411


def test_silent_clients_are_survived(port: int) -> None:
    """Clients that say nothing, or stop half-way, keep no place for long."""
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(30)]
    for i, client in enumerate(silent):
        if i % 2:
            client.sendall(b"POST /place HTTP/1.0\r\nContent-Length: 100\r\n\r\n{")
    started = time.monotonic()
    status, _ = posted(port, "/place", json.dumps({"job": JOB}).encode())
    assert status == 200 and time.monotonic() - started < 15
    for client in silent:
        client.close()


def test_a_slow_client_is_cut_off(port: int) -> None:
    """A client that sends a byte now and then does not outlast the time of a request."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(b"POST /place HTTP/1.0\r\nContent-Length: 1000\r\n\r\n")
        started = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() - started < 8:
                client.sendall(b" ")
                time.sleep(0.2)
        assert time.monotonic() - started < 5


def offered(service: example.Service, rank: int, name: str = "a") -> dict[str, Any]:
    """Ask for the node of a pod."""
    label = {"batch.kubernetes.io/job-completion-index": str(rank)}
    pod = {"annotations": {"planner/job": json.dumps({**JOB, "name": name})}, "labels": label}
    names = [f"n{i}" for i in range(1, 9)]
    found: dict[str, Any] = service.answer("/filter", {"Pod": {"metadata": pod}, "NodeNames": names})
    return found


def test_reservations_end(service: example.Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes whose pods never ask are given back in time; those of pods that did, and of whole jobs, are not."""
    clock = [0.0]
    monkeypatch.setattr(example.time, "monotonic", lambda: clock[0])
    assert offered(service, 0)["NodeNames"] == ["n1"]
    for rank in range(4):
        assert len(offered(service, rank, "b")["NodeNames"]) == 1
    assert len(service.cluster.busy) == 8
    clock[0] = example.PROMISE_SECONDS + 1
    service.forget()
    assert sorted(service.cluster.busy) == ["n1", "n5", "n6", "n7", "n8"]
    service.answer("/free", ["n5", "n6", "n7", "n8"])
    assert service.promised == {}


def test_a_rank_beyond_the_job_is_refused(service: example.Service) -> None:
    """A negative index does not name the last node."""
    for rank in (-1, 4):
        with pytest.raises(example.InputError, match="must be from 0 to 3"):
            offered(service, rank)
