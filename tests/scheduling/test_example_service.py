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
from each_case import each

CONF = "SwitchName=leaf1 Nodes=n[1-4]\nSwitchName=leaf2 Nodes=n[5-8]\nSwitchName=top Switches=leaf[1-2]\n"
JOB = {"name": "a", "mesh": {"pipeline": 2, "data": 2}}


def of_job(job: str, rank: str) -> dict[str, Any]:
    return {"annotations": {"planner/job": job}, "labels": {example.INDEX: rank}}


@pytest.fixture
def service(tmp_path: Path) -> example.Service:
    """Return a service over eight nodes."""
    (tmp_path / "topology.conf").write_text(CONF)
    return example.Service(tmp_path / "topology.conf")


@pytest.fixture
def port(service: example.Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Serve with short times and few places."""
    monkeypatch.setattr(example, "SILENT_SECONDS", 0.3)
    monkeypatch.setattr(example, "REQUEST_SECONDS", 1.0)
    monkeypatch.setattr(example, "MAX_CLIENTS", 8)
    server = example.Server(("127.0.0.1", 0), service)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def posted(port: int, path: str, body: bytes, length: int | None = None) -> tuple[int, Any]:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    client.putrequest("POST", path)
    client.putheader("Content-Length", str(len(body) if length is None else length))
    client.endheaders(body)
    answer = client.getresponse()
    return answer.status, json.loads(answer.read())


def test_a_job_is_placed_in_the_order_that_it_wants(port: int) -> None:
    status, placed = posted(port, "/place", json.dumps({"job": JOB, "order": "name"}).encode())
    assert (status, placed["hostlist"], placed["order"]) == (200, "n[1-4]", "name")
    status, answer = posted(port, "/place", json.dumps({"job": JOB, "order": "nam"}).encode())
    assert status == 400 and "order: must be any or name" in answer["Error"]


def test_no_request_names_a_file(port: int, tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    name = str(tmp_path / "job.json")
    pod = {"metadata": of_job(json.dumps(name), "0")}
    requests = {"/place": ({"job": name}, 400), "/slurm": (name, 400), "/filter": ({"Pod": pod}, 200)}
    for path, (body, expected) in requests.items():
        status, answer = posted(port, path, json.dumps(body).encode())
        assert status == expected and "must be an object (is str)" in answer["Error"]


@each(("body", "length", "status"), [
    *((body, None, 400) for body in (b"[" * 100_000, b'{"job": ' + b"9" * 5_000 + b"}", b"\xff", b"", b"null", b"3")),
    (b'{"job": NaN}', None, 400), (b"", example.MAX_BODY + 1, 413), (b"", -1, 411),
])  # fmt: skip
def test_bodies_that_are_no_job_are_refused(port: int, body: bytes, length: int | None, status: int) -> None:
    """Deep JSON, long numbers, binary data and long bodies, these unread; the next request is served."""
    assert posted(port, "/place", body, length)[0] == status
    assert posted(port, "/place", json.dumps({"job": JOB}).encode())[0] == 200


def test_silent_clients_are_survived(port: int) -> None:
    """Clients that say nothing, or stop half-way, keep no place for long."""
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(18)]
    for i, client in enumerate(silent):
        if i % 2:
            client.sendall(b"POST /place HTTP/1.0\r\nContent-Length: 100\r\n\r\n{")
    started = time.monotonic()
    status, _ = posted(port, "/place", json.dumps({"job": JOB}).encode())
    assert status == 200 and time.monotonic() - started < 15
    for client in silent:
        client.close()


def test_a_slow_client_is_cut_off(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(b"POST /place HTTP/1.0\r\nContent-Length: 1000\r\n\r\n")
        started = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() - started < 8:
                client.sendall(b" ")
                time.sleep(0.2)
        assert time.monotonic() - started < 5


NAMES = [f"n{i}" for i in range(1, 9)]


def offered(
    service: example.Service, rank: int, name: str = "a", *, uid: str = "", nodes: list[str] = NAMES
) -> dict[str, Any]:
    pod = of_job(json.dumps({**JOB, "name": name}), str(rank))
    owner = {"ownerReferences": [{"kind": "Job", "name": name, "uid": uid}]} if uid else {}
    found: dict[str, Any] = service.answer("/filter", {"Pod": {"metadata": {**pod, **owner}}, "NodeNames": nodes})
    return found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time that the service reads, in a list of one."""
    now = [0.0]
    monkeypatch.setattr(example.time, "monotonic", lambda: now[0])
    return now


@each(("metadata", "offered"), [
    ({}, NAMES), ({"annotations": None, "labels": None}, NAMES), ({"annotations": {"other": "x"}}, NAMES),
    (of_job(json.dumps(JOB), "2"), ["n3"]),
])  # fmt: skip
def test_pods_of_others_keep_their_nodes(port: int, metadata: dict[str, Any], offered: list[str]) -> None:
    """A pod without a job of ours is offered every node, whether these are named or sent whole, another its own."""
    status, answer = posted(port, "/filter", json.dumps({"Pod": {"metadata": metadata}, "NodeNames": NAMES}).encode())
    assert (status, answer["NodeNames"], answer["Error"]) == (200, offered, "")
    sent = [{"metadata": {"name": n}, "spec": {"x": n}} for n in NAMES]
    body = {"Pod": {"metadata": metadata}, "Nodes": {"items": sent}}
    whole = posted(port, "/filter", json.dumps(body).encode())[1]
    assert whole["Nodes"] == {"items": [n for n in sent if n["metadata"]["name"] in offered]} and not whole["Error"]


@each(("metadata", "problem"), [
    (of_job("{", "0"), "fix the JSON there"),
    (of_job(json.dumps({**JOB, "mesh": {"data": 9}}), "0"), "9 nodes > 8 free"),
    ({"annotations": {"planner/job": json.dumps(JOB)}}, "must be the rank of the pod (is '')"),
    (of_job(json.dumps(JOB), "-1"), "must be the rank"), (of_job(json.dumps(JOB), "4"), "must be from 0 to 3"),
])  # fmt: skip
def test_what_is_wrong_with_a_pod_is_its_error(port: int, metadata: dict[str, Any], problem: str) -> None:
    status, answer = posted(port, "/filter", json.dumps({"Pod": {"metadata": metadata}, "NodeNames": NAMES}).encode())
    assert status == 200 and answer["NodeNames"] == [] and problem in answer["Error"]


def test_nodes_whose_pods_never_ask_are_given_back(service: example.Service, clock: list[float]) -> None:
    assert offered(service, 0)["NodeNames"] == ["n1"]
    for rank in range(4):
        assert len(offered(service, rank, "b")["NodeNames"]) == 1
    assert len(service.cluster.busy) == 8
    clock[0] = example.PROMISE_SECONDS + 1
    service.forget()
    assert sorted(service.cluster.busy) == ["n1", "n5", "n6", "n7", "n8"]
    service.answer("/free", ["n1", "n5", "n6", "n7", "n8"])
    assert service.promised == {}


def test_the_nodes_of_a_job_that_has_ended_are_given_to_the_next(service: example.Service, clock: list[float]) -> None:
    """All eight nodes had pods that asked; once the scheduler offers them again, long after, a new job gets them."""
    for name in ("a", "b"):
        for rank in range(4):
            assert len(offered(service, rank, name)["NodeNames"]) == 1
    clock[0] = 100.0
    assert "4 nodes > 0 free" in offered(service, 0, "c")["Error"]  # offered, but their pods may not be bound yet
    clock[0] = example.PROMISE_SECONDS + 1
    assert "4 nodes > 0 free" in offered(service, 0, "c", nodes=[])["Error"]  # all run
    assert offered(service, 0, "c", nodes=["n5", "n6", "n7", "n8"])["NodeNames"] == ["n5"]
    assert [key[1] for key in service.promised] == ["a", "c"]


def test_a_pod_that_asks_again_keeps_its_node(service: example.Service, clock: list[float]) -> None:
    for _ in range(6):
        clock[0] += 500.0
        assert offered(service, 1)["NodeNames"] == ["n2"]
    for rank in range(4):
        offered(service, rank, "b")
    assert len(service.cluster.busy) == 5  # ranks 0, 2 and 3 of the first job never asked
    assert offered(service, 2)["NodeNames"] == ["n3"]
    service.cluster.set_busy(["n4"])
    assert "n4 was given back and taken by others" in offered(service, 3)["Error"]


def test_a_job_of_the_same_name_is_another_job(service: example.Service) -> None:
    """A job that was deleted and made again is placed anew, and the nodes of the first are its to take."""
    for rank in range(4):
        offered(service, rank, uid="one")
    service.cluster.set_busy(["n8"])
    assert len(service.cluster.busy) == 5
    assert offered(service, 0, uid="two")["NodeNames"] == ["n1"]
    assert len(service.cluster.busy) == 5 and [key[2] for key in service.promised] == ["two"]
