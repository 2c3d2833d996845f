"""Questions about one instance, each with some of its values changed, which a thread of its own answers in order."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from planner.errors import InputError, PlannerError
from planner.instance.instance import Goal, Instance
from planner.plan.plan import Plan
from planner.planning.frontier import why_no_curve
from planner.planning.session import Session
from planner.solvers.progress import Event
from planner.solvers.signals import Interrupter
from planner.sweeps.axes import changed, read_changes

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
    """A question with its answer: a plan, or why there is none."""

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
    def elapsed_seconds(self) -> float:
        """Seconds since it was asked, or that it took."""
        return time.perf_counter() - self.begun if self.seconds is None else self.seconds


class QuestionThread:
    """The questions of a page: one at a time, all in one session, so that each serves the next."""

    def __init__(self, instance: Instance, *, time_limit: float | None = None, seed: int = 0) -> None:
        self.instance = instance
        self.asked: list[AskedQuestion] = []
        self.complaint = ""  # about the form that was sent last
        self.sent: dict[str, str] = {}  # by that form, which the next one begins with
        self._session, self._interrupter = Session(), Interrupter()
        self._time_limit, self._seed = time_limit, seed
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def running(self) -> AskedQuestion | None:
        """The question that is being answered."""
        last = self.asked[-1] if self.asked else None
        return last if last is not None and last.seconds is None else None

    def values(self) -> dict[str, str]:
        """Return the instance's values of the fields; without the racks where a grid decides them."""
        data = self.instance.model_dump(mode="json")
        found = {}
        for path, _, _ in FIELDS:
            if path == "hardware.racks" and self.instance.grid is not None:
                continue
            part, name = path.split(".")
            value = data[part].get(name)
            found[path] = "" if value is None else f"{value:.15g}" if isinstance(value, float) else str(value)
        return found

    def ask(self, fields: Mapping[str, str], others: str = "", *, with_curve: bool = False) -> None:
        """Begin a question: the instance with other fields and changes, a line each. InputError: it cannot be asked."""
        now = self.values()
        given = {path: text.strip() for path, text in fields.items() if path in now and text.strip() != now[path]}
        lines = [line.strip() for line in others.splitlines() if line.strip()]
        changes: dict[str, Any] = dict(read_changes([*(f"{p}={t}" for p, t in given.items() if t), *lines]))
        changes |= dict.fromkeys(path for path, text in given.items() if not text)
        shown = tuple(f"{path}={'none' if value is None else value}" for path, value in changes.items())
        with self._lock:
            if self.running is not None:
                raise InputError("a question is being answered; stop it, or wait for its end")
            instance = changed(self.instance, changes)
            self._interrupter.clear()
            number = len(self.asked) + 1
            question = AskedQuestion(number=number, changes=shown, instance=instance, with_curve=with_curve)
            self.asked.append(question)
            self._thread = threading.Thread(target=self._answer, args=(question,), daemon=True)
            self._thread.start()

    def try_to_ask(self, sent: Mapping[str, str]) -> None:
        """Begin the question of a form, or keep what is wrong with it for the page to show."""
        self.complaint, self.sent = "", dict(sent)
        try:
            self.ask(sent, sent.get("others", ""), with_curve="curve" in sent)
        except InputError as error:
            self.complaint = str(error)

    def keep(self, plan: Plan) -> None:
        """Take a plan at hand as the first answer."""
        number = len(self.asked) + 1
        self.asked.append(AskedQuestion(number=number, changes=(), instance=plan.instance, plan=plan, seconds=0.0))

    def stop(self, wait_seconds: float = 0.0) -> None:
        """End the search with its best plan so far."""
        self._interrupter.interrupt()
        if self._thread is not None and wait_seconds:
            self._thread.join(wait_seconds)

    def _answer(self, question: AskedQuestion) -> None:
        def note(event: Event) -> None:
            question.event = event

        limits: dict[str, Any] = {"time_limit": self._time_limit, "seed": self._seed, "on_progress": note}
        try:
            question.plan = self._session.solve(question.instance, interrupt=self._interrupter, **limits)
            why = "the search was stopped before it" if self._interrupter.interrupted else why_no_curve(question.plan)
            if question.with_curve and why is not None:
                question.no_curve = why
            elif question.with_curve:
                curve = self._session.curve(question.plan, interrupt=self._interrupter, **limits).curve
                question.plan = question.plan.model_copy(update={"curve": curve})
        except PlannerError as error:
            question.error = str(error)
        except KeyboardInterrupt:
            question.error = "stopped before there was a plan"
        except Exception as error:  # or the question would run for ever
            question.error = f"internal error: {error!r}; please report it with the instance"
        finally:
            question.seconds = question.elapsed_seconds
