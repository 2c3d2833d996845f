"""Answers that a solver never should give, planted in each back end: at the native call, so that all of ours runs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import highspy
import pytest
from ortools.sat.python import cp_model

Statuses = highspy.HighsModelStatus
ANSWERS = ("invalid", "unknown", "infeasible", "raises", "zeros", "gap")


@dataclass
class Planted:
    """What a back end answers from one of its runs on: how many runs there were, and how many were falsified."""

    answer: str
    first: int = 0  # runs before it that are as they are
    runs: int = 0
    falsified: int = 0
    presolved: list[bool] = field(default_factory=list)

    def hits(self, *, presolve: bool) -> bool:
        """Count a run and return whether it is falsified; infeasible is a defect of presolve, as those reported."""
        self.runs += 1
        self.presolved.append(presolve)
        hit = self.runs > self.first and (presolve or self.answer != "infeasible")
        self.falsified += hit
        return hit


def plant_in_cpsat(patch: pytest.MonkeyPatch, planted: Planted) -> None:
    """Falsify what CP-SAT answers."""
    solve, bound = cp_model.CpSolver.solve, cp_model.CpSolver.best_objective_bound.fget
    status = {"invalid": cp_model.MODEL_INVALID, "unknown": cp_model.UNKNOWN, "infeasible": cp_model.INFEASIBLE}

    def falsified(self: Any, model: Any, *more: Any) -> Any:
        self.lies = planted.hits(presolve=self.parameters.cp_model_presolve)
        if self.lies and planted.answer == "raises":
            raise RuntimeError("planted")
        found = solve(self, model, *more)
        if self.lies and planted.answer == "zeros" and found in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            for i in range(len(self.response_proto.solution)):
                self.response_proto.solution[i] = 0
        return status.get(planted.answer, found) if self.lies else found

    def far(self: Any) -> Any:
        told = bound(self)
        value = self.objective_value
        return value - 0.9 * abs(value) - 1 if getattr(self, "lies", False) and planted.answer == "gap" else told

    patch.setattr(cp_model.CpSolver, "solve", falsified)
    patch.setattr(cp_model.CpSolver, "best_objective_bound", property(far))


def plant_in_highs(patch: pytest.MonkeyPatch, planted: Planted) -> None:
    """Falsify what HiGHS answers: also where Pyomo asks it."""
    h = highspy.Highs
    run, model_status, solution, info = h.run, h.getModelStatus, h.getSolution, h.getInfo
    status = {"invalid": Statuses.kModelError, "unknown": Statuses.kUnknown, "infeasible": Statuses.kInfeasible}
    lying: dict[int, bool] = {}

    def falsified(self: Any, *more: Any) -> Any:
        presolve = self.getOptionValue("presolve")[1] != "off"
        lying[id(self)] = planted.hits(presolve=presolve)
        if lying[id(self)] and planted.answer == "raises":
            raise RuntimeError("planted")
        return highspy.HighsStatus.kOk if lying[id(self)] and planted.answer in status else run(self, *more)

    def zeros(self: Any) -> Any:
        found = solution(self)
        if lying.get(id(self)) and planted.answer == "zeros" and found.value_valid:
            found.col_value = [0.0] * len(found.col_value)
            found.row_value = [0.0] * len(found.row_value)
        return found

    def far(self: Any) -> Any:
        found = info(self)
        if lying.get(id(self)) and planted.answer == "gap":
            value = found.objective_function_value
            found.mip_dual_bound = value - 0.9 * abs(value) - 1
        return found

    def state(self: Any) -> Any:
        found = model_status(self)
        return status.get(planted.answer, found) if lying.get(id(self)) else found

    for name, changed in (("run", falsified), ("getSolution", zeros), ("getInfo", far), ("getModelStatus", state)):
        patch.setattr(h, name, changed)


BACK_ENDS: dict[str, Callable[[pytest.MonkeyPatch, Planted], None]] = {"cpsat": plant_in_cpsat, "highs": plant_in_highs}
