"""Constants that are taken over follow the fit, and the names of measured rows lead to entries of the catalogue."""

from typing import Any

import calibration_rows
import pytest
from taken_over import donor_of, renewed

from planner.instance.catalogue import catalogue

DONOR: dict[str, Any] = {
    "name": "A",
    "gemm_efficiency": {
        "max_share": {"bf16": 0.7, "fp8": 0.8},
        "operand_traffic": 0.5,
        "tail": 3.0,
        "source": "Fitted",
    },
    "launch_seconds": 2e-5,
    "overlap": 0.4,
    "ports": 8,
    "source": {"launch_seconds": "Fitted to rows", "overlap": "Fitted to rows", "ports": "datasheet"},
}
OWN: dict[str, Any] = {
    "name": "B",
    "gemm_efficiency": {"max_share": {"bf16": 0.1}, "operand_traffic": 0.1, "source": "taken over from A, as the rest"},
    "launch_seconds": 1.0,
    "ports": 4,
    "source": {"launch_seconds": "taken over from A; no B row", "ports": "datasheet of B"},
    "note": "x",
}


def test_fitted_figures_follow() -> None:
    """Figures taken over, those fitted since, and the shares of the peak by type are the donor's; others stay."""
    new = renewed(OWN, DONOR)
    assert donor_of(OWN) == "A" and donor_of(DONOR) is None
    assert (new["launch_seconds"], new["overlap"], new["ports"], new["name"]) == (2e-5, 0.4, 4, "B")
    assert new["source"]["overlap"] == "taken over from A; no B row" and new["source"]["ports"] == "datasheet of B"
    assert new["gemm_efficiency"] == {
        "max_share": {"bf16": 0.7},
        "operand_traffic": 0.5,
        "tail": 3.0,
        "source": "taken over from A, as the rest",
    }


def test_figures_with_a_source_of_their_own_stay() -> None:
    """What is measured of the entry itself is not overwritten."""
    measured = OWN | {"gemm_efficiency": OWN["gemm_efficiency"] | {"source": "measured"}}
    measured["source"] = OWN["source"] | {"launch_seconds": "measured", "overlap": "taken over from A"}
    new = renewed(measured, DONOR)
    assert (new["launch_seconds"], new["overlap"]) == (1.0, 0.4)
    assert new["gemm_efficiency"]["max_share"] == {"bf16": 0.1} and new["gemm_efficiency"]["tail"] == 3.0


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (calibration_rows.ACCELERATORS.values(), "accelerators"),
        (calibration_rows.RACKS.keys(), "accelerators"),
        (calibration_rows.RACKS.values(), "racks"),
        (calibration_rows.MODELS.values(), "models"),
        ([name for _, name in calibration_rows.FRAMEWORKS], "software"),
    ],
    ids=["accelerators", "accelerators of racks", "racks", "models", "frameworks"],
)
def test_names_of_measured_rows_lead_to_the_catalogue(names: list[str], kind: str) -> None:
    """Every name that a table of measured rows may lead to is an entry."""
    assert set(names) <= set(catalogue(kind))
