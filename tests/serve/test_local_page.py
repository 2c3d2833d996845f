"""The local page: questions are answered as solves are, one after another; no other machine or page gets an answer."""

import json
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from joint_toys import toy

import planner
from planner.errors import InputError
from planner.instance.instance import Instance
from planner.plan.plan import Plan
from planner.serve.local_server import QuestionThread, local_server
from planner.units import percent

SEED = 3


class Page:
    """A page that is served, as a browser sees it."""

    def __init__(self, questions: QuestionThread) -> None:
        self.questions, self.server = questions, local_server(questions, 0)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def get(self, path: str, data: bytes | None = None, **headers: str) -> str:
        """Return what is at a path, or the page that comes next where data are sent to it."""
        url = f"http://127.0.0.1:{self.server.server_port}{path}"
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=30) as answer:
            return str(answer.read().decode())

    def post(self, **fields: str) -> str:
        """Send the form, and return the page that comes next."""
        token = re.search(r'name="token" value="([^"]+)"', self.get("/"))
        return self.get("/", urllib.parse.urlencode({"token": token[1] if token else "", **fields}).encode())

    def answered(self) -> list[dict[str, Any]]:
        """Return all questions once none is being answered."""
        late = time.monotonic() + 60
        while self.questions.running is not None and time.monotonic() < late:
            time.sleep(0.01)
        assert self.questions.running is None
        found: list[dict[str, Any]] = json.loads(self.get("/state.json"))
        return found


@pytest.fixture
def question() -> Instance:
    return toy(SEED)


@pytest.fixture
def page(question: Instance) -> Iterator[Page]:
    served = Page(QuestionThread(question))
    yield served
    served.server.shutdown()
    served.server.server_close()


def test_questions_are_answered_as_solves_are(page: Page, question: Instance) -> None:
    """With fields, with further changes and with neither; a plan comes back as a page and as a file that checks."""
    racks = question.hardware.racks or 0
    page.post()
    page.answered()
    page.post(**{"hardware.racks": str(racks - 1), "others": "workload.tokens=x2", "curve": "1"})
    first, second = page.answered()
    fewer = planner.changed(question, {"hardware.racks": racks - 1, "workload.tokens": "x2"})
    for row, asked in ((first, question), (second, fewer)):
        plan = planner.solve(asked)
        assert (row["status"], row["value"]) == (plan.status, plan.objective.value)
    assert second["changes"] == [f"hardware.racks={racks - 1}", "workload.tokens=x2"]
    written = Plan.model_validate_json(page.get("/plan/2.json"))
    assert planner.check(written) == [] and written.curve is not None and written.curve.points
    assert "What less money buys" in page.get("/") and f", gap {percent(written.objective.gap)}; " in page.get("/")
    assert first["phase"] and second["phase"]
    assert question.name in page.get("/plan/1.html")


def test_what_is_wrong_is_said_on_the_page(page: Page) -> None:
    text = page.post(**{"limits.deadline_days": "soon", "others": "tp=1"})
    assert "limits.deadline_days" in text.split("<form")[0]
    assert 'value="soon"' in text and ">tp=1</textarea>" in text
    assert page.answered() == []
    assert "(is -2)" in page.post(**{"hardware.racks": "-2"}).split("<form")[0]
    assert "limits.deadline_days" not in page.post(**{"limits.budget_usd": "1"}).split("<form")[0]
    assert [row["status"] for row in page.answered()] == ["infeasible"]
    page.post(curve="1", **{"objective.minimize": "cost_usd", "limits.deadline_days": "400"})
    assert [row["status"] for row in page.answered()] == ["infeasible", "optimal"]
    assert "No curve of less money: the goal is money (cost_usd)" in page.get("/")


def test_a_stopped_question_ends_with_its_best_plan(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that would go on for ever ends as the form is sent; the next question runs again, to its proof."""
    solve = planner.Session.solve

    def endless(self: planner.Session, instance: Instance, *, interrupt: planner.Interrupter, **limits: Any) -> Plan:
        plan = solve(self, instance, **limits)
        while not interrupt.interrupted:
            time.sleep(0.01)
        return plan.replaced(stopped="interrupted", status="feasible")

    with monkeypatch.context() as patched:
        patched.setattr(planner.Session, "solve", endless)
        page.post()
        assert page.questions.running is not None
        assert 'http-equiv="refresh"' in page.get("/")
        page.post(stop="1")
        assert [row["status"] for row in page.answered()] == ["feasible"]
    page.post()
    assert page.answered()[-1]["status"] == "optimal"


def test_strangers_get_nothing(page: Page) -> None:
    """A name that leads here from elsewhere, a form of another page, paths that are none, and a port that is taken."""
    for path, headers, status in (("/", {"Host": "evil.example"}, 403), ("/plan/9.json", {}, 404), ("/x", {}, 404)):
        with pytest.raises(urllib.error.HTTPError, match=str(status)):
            page.get(path, **headers)
    with pytest.raises(urllib.error.HTTPError, match="403"):
        page.post(token="guessed")
    assert page.questions.asked == []
    with pytest.raises(InputError, match=f"--port {page.server.server_port}: cannot be had"):
        local_server(page.questions, page.server.server_port)
