"""The local web server of the page, which only this machine's browsers reach, and the thread that answers questions."""

import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, get_args
from urllib.parse import parse_qs, urlsplit

from planner.errors import InputError, PlannerError
from planner.instance.instance import Goal, Instance
from planner.plan.plan import Plan
from planner.plan.plan_sections import layout_in_short
from planner.planning.frontier import why_no_curve
from planner.planning.solve import Session
from planner.report.decisions import status_of
from planner.report.page.page import curve_table, report_page
from planner.report.page.page_parts import template
from planner.solvers.progress import Event
from planner.solvers.signals import Interrupter
from planner.sweeps.axes import changed, read_changes
from planner.units import duration, money, percent

# Path, what the page calls it, and the choices where it is one of a few.
FIELDS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("limits.budget_usd", "Budget (USD)", ()),
    ("hardware.racks", "Racks", ()),
    ("limits.deadline_days", "Deadline (days)", ()),
    ("limits.facility_power_mw", "Power of the facility (MW)", ()),
    ("limits.max_batch_tokens", "Largest batch (tokens)", ()),
    ("workload.tokens", "Tokens to train on", ()),
    ("objective.minimize", "Goal", get_args(Goal)),
)


@dataclass(kw_only=True)
class AskedQuestion:
    """A question of the local web page, with its answer: a plan, or why there is none."""

    number: int  # from 1 in the order in which they were asked
    changes: tuple[str, ...]  # what differs from the instance of the page, PATH=VALUE each
    instance: Instance
    with_curve: bool = False
    plan: Plan | None = None
    error: str = ""
    no_curve: str = ""  # why what less money buys was not drawn, where it was asked for
    event: Event | None = None  # what the search reported last
    begun: float = field(default_factory=time.perf_counter)
    seconds: float | None = None  # that it took, once it is answered

    @property
    def asked_for(self) -> str:
        """What the page's question changes in the instance, in words."""
        return ", ".join(self.changes) or "the instance as it is"

    @property
    def elapsed_seconds(self) -> float:
        """Seconds since the page's question began, or that its answer took."""
        return time.perf_counter() - self.begun if self.seconds is None else self.seconds


class QuestionThread:
    """The thread that answers the page's questions one at a time, in one session, so that each serves the next."""

    def __init__(self, instance: Instance, *, time_limit: float | None = None, seed: int = 0) -> None:
        self.instance = instance
        self.asked: list[AskedQuestion] = []
        self.complaint = ""  # about the form that was sent last
        self.sent: dict[str, str] = {}  # by that form, which the next one begins with
        self._session, self._interrupter = Session(), Interrupter()
        self._limits: dict[str, Any] = {"time_limit": time_limit, "seed": seed}
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def running(self) -> AskedQuestion | None:
        """The page's question that is being answered; None where there is none."""
        return next((last for last in self.asked[-1:] if last.seconds is None), None)

    def values(self) -> dict[str, str]:
        """Return the instance's values of the page's form fields; without the racks where a grid decides them."""
        data = self.instance.model_dump(mode="json")
        found = {}
        for path in (path for path, _, _ in FIELDS if path != "hardware.racks" or self.instance.grid is None):
            part, name = path.split(".")
            value = data[part].get(name)
            found[path] = "" if value is None else f"{value:.15g}" if isinstance(value, float) else str(value)
        return found

    def ask(self, form: Mapping[str, str]) -> None:
        """Begin a question: the instance with the page form's fields and other changes. InputError: invalid ones."""
        now = self.values()
        given = {path: text.strip() for path, text in form.items() if path in now and text.strip() != now[path]}
        others = [line.strip() for line in form.get("others", "").splitlines() if line.strip()]
        changes: dict[str, Any] = dict(read_changes([*(f"{p}=={t}" for p, t in given.items() if t), *others]))
        changes |= dict.fromkeys(path for path, text in given.items() if not text)
        shown = tuple(f"{path}={'none' if value is None else value}" for path, value in changes.items())
        with self._lock:
            if self.running is not None:
                raise InputError("a question is being answered; stop it, or wait for its end")
            instance = changed(self.instance, changes)
            self._interrupter.clear()
            number, curve = len(self.asked) + 1, "curve" in form
            question = AskedQuestion(number=number, changes=shown, instance=instance, with_curve=curve)
            self.asked.append(question)
            self._thread = threading.Thread(target=self._answer, args=(question,), daemon=True)
            self._thread.start()

    def stop(self, wait_seconds: float = 0.0) -> None:
        """End the search for the running question's answer with its best plan so far."""
        self._interrupter.interrupt()
        if self._thread is not None and wait_seconds:
            self._thread.join(wait_seconds)

    def _answer(self, question: AskedQuestion) -> None:
        limits = self._limits | {"on_progress": partial(setattr, question, "event")}
        try:
            question.plan = self._session.solve(question.instance, interrupt=self._interrupter, **limits)
            why = "the search was stopped before it" if self._interrupter.interrupted else why_no_curve(question.plan)
            if question.with_curve and why is not None:
                question.no_curve = why
            elif question.with_curve:
                curve = self._session.curve(question.plan, interrupt=self._interrupter, **limits).curve
                question.plan = question.plan.replaced(curve=curve)
        except PlannerError as error:
            question.error = str(error)
        except KeyboardInterrupt:
            question.error = "stopped before there was a plan"
        except Exception as error:  # or the question would run for ever
            question.error = f"internal error: {error!r}; please report it with the instance"
        finally:
            question.seconds = question.elapsed_seconds


HOST = "127.0.0.1"
# What a browser lets the pages ask for: nothing from elsewhere, and no script.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; frame-ancestors 'none'"


def local_server(questions: QuestionThread, port: int) -> ThreadingHTTPServer:
    """Return a web server of the page at a port of this machine, 0: any. InputError: port taken, or no jinja2."""
    page = template("serve", "serve/page.html.jinja")
    own = {"questions": questions, "token": secrets.token_urlsafe(16), "render": staticmethod(page.render)}
    try:
        return ThreadingHTTPServer((HOST, port), type("Handler", (_PageHandler,), own))
    except OSError as error:
        raise InputError(f"--port {port}: cannot be had ({error}); give another, or 0 for any that is free") from None


class _PageHandler(BaseHTTPRequestHandler):
    """Answers HTTP requests of one page: `/`, `/state.json`, `/plan/N.html`, `/plan/N.json`; forms ask or stop."""

    questions: QuestionThread
    token: str
    render: Callable[..., str]

    def log_message(self, format: str, *args: Any) -> None:
        """Log no line for an HTTP request of the page."""

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        pages = {f"/plan/{x.number}.{kind}": x.plan for x in self.questions.asked for kind in ("html", "json")}
        if not self._is_local():
            self._send(HTTPStatus.FORBIDDEN, "text/plain", "the page is for this machine alone")
        elif path == "/":
            self._send(HTTPStatus.OK, "text/html", self._page())
        elif path == "/state.json":
            self._send(HTTPStatus.OK, "application/json", json.dumps([_figures(x) for x in self.questions.asked]))
        elif (plan := pages.get(path)) is not None:
            if path.endswith(".json"):
                self._send(HTTPStatus.OK, "application/json", plan.model_dump_json(indent=1) + "\n")
            else:
                self._send(HTTPStatus.OK, "text/html", report_page([(plan.instance.name, plan)], date.today()))
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", f"{path}: there is no such page; the questions are at /")

    def do_POST(self) -> None:
        size = self.headers.get("Content-Length", "")
        if not self._is_local() or not size.isdecimal() or int(size) > 1 << 16:  # bytes of a form
            self._send(HTTPStatus.FORBIDDEN, "text/plain", "the form is for this page alone")
            return
        form = parse_qs(self.rfile.read(int(size)).decode("utf-8", "replace"), keep_blank_values=True)
        fields = {name: values[-1] for name, values in form.items()}
        if not secrets.compare_digest(fields.pop("token", "").encode(), self.token.encode()):
            self._send(HTTPStatus.FORBIDDEN, "text/plain", "the form is not of this page; load it again")
            return
        if "stop" in fields:
            self.questions.stop()
        else:
            self.questions.complaint, self.questions.sent = "", fields
            try:
                self.questions.ask(fields)
            except InputError as error:
                self.questions.complaint = str(error)
        self.send_response(HTTPStatus.SEE_OTHER)
        self.send_header("Location", "/")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _is_local(self) -> bool:
        """Return whether an HTTP request names this machine as host, not a name that resolves to it."""
        port = self.connection.getsockname()[1]
        return self.headers.get("Host") in {f"{HOST}:{port}", f"localhost:{port}"}

    def _page(self) -> str:
        sent, running = self.questions.sent, self.questions.running
        values, progress = {path: sent.get(path, value) for path, value in self.questions.values().items()}, None
        if running is not None:
            line, event = "reading", running.event
            if event is not None:
                gap = "" if event.gap is None else f", gap {percent(event.gap)}"
                best, bound = _in_unit(event.incumbent, event.unit), _in_unit(event.bound, event.unit)
                line = f"{event.phase}: best {best}, bound {bound}{gap}"
            progress = {"what": running.asked_for, "elapsed": duration(running.elapsed_seconds), "line": line}
        answers = list[dict[str, Any]]()
        for asked in (question for question in reversed(self.questions.asked) if question is not running):
            answers.append({"number": asked.number, "what": asked.asked_for, "error": asked.error})
            if (plan := asked.plan) is not None:
                goal, layout = plan.instance.objective, plan.layout
                unit = "usd" if goal.in_dollars else "days" if goal.in_days else ""
                answers[-1] |= {
                    "status": status_of(plan),
                    "good": plan.status in ("optimal", "feasible") and not plan.violations,
                    "value": _in_unit(plan.objective.value, unit) if plan.objective.value is not None else "",
                    "gap": "" if plan.objective.gap is None else percent(plan.objective.gap),
                    "days": "" if layout is None else f"{layout.metrics.days_to_train:,.4g}",
                    "capital": "" if plan.cost is None else money(plan.cost.total_usd),
                    "layout": "" if layout is None else layout_in_short(layout),
                    "reason": "" if plan.conflict is None else plan.conflict.reason,
                    "took": duration(asked.elapsed_seconds),
                    "no_curve": asked.no_curve,
                    "curve": None if plan.curve is None else curve_table(plan.curve),
                }
        return self.render(
            name=self.questions.instance.name,
            token=self.token,
            complaint=self.questions.complaint,
            fields=[(path, label, values[path], choices) for path, label, choices in FIELDS if path in values],
            others=sent.get("others", ""),
            curve="curve" in sent,
            running=progress,
            answers=answers,
        )

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        content = text.encode("utf-8")
        self.send_response(status)
        for name, value in (
            ("Content-Type", f"{kind}; charset=utf-8"),
            ("Content-Length", str(len(content))),
            ("Cache-Control", "no-store"),
            ("Content-Security-Policy", POLICY),
            ("X-Content-Type-Options", "nosniff"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


def _in_unit(value: float | None, unit: str) -> str:
    if value is None:
        return "none yet"
    return {"days": f"{value:,.4g} days", "usd": money(value)}.get(unit, f"{value:,.5g}")


def _figures(question: AskedQuestion) -> dict[str, Any]:
    plan, event = question.plan, question.event
    return {
        "number": question.number,
        "changes": list(question.changes),
        "answered": question.seconds is not None,
        "elapsed_seconds": question.elapsed_seconds,
        "phase": None if event is None else event.phase,
        "value": (None if event is None else event.incumbent) if plan is None else plan.objective.value,
        "bound": (None if event is None else event.bound) if plan is None else plan.objective.bound,
        "status": None if plan is None else plan.status,
        "error": question.error or None,
    }
