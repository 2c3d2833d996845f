"""Measure the layout alone: CPU seconds to the proof for published sizes of Megatron models on A100s, one site.

Run `.venv/bin/python scripts/bench/bench_layout.py [--repeats 5] [--profile]`. Each instance goes through the search of
`planner solve`, with a cache of its own; the least of the repeats is the figure. 175B: Narayanan 2021 (arXiv
2104.04473), table 2; 530B and 1T: Korthikanti 2022 (arXiv 2205.05198), tables 3 and 5.
"""

import argparse
import cProfile
import pstats
import time
from dataclasses import dataclass

from planner.instance.instance import Instance
from planner.models.joint.joint_question import Solving
from planner.models.joint.joint_solution import JointSolution
from planner.models.joint.solve_joint import solve_joint
from planner.planning.load import load_instance

SEQUENCE, SHOWN = 2048, 25  # tokens; lines of a profile
HALF = {
    "compute": "fp16",
    "parameter_bytes": 2,
    "working_parameter_bytes": 2,
    "gradient_bytes": 4,
    "optimizer_bytes": 12,
    "activation_bytes": 2,
    "collective_bytes": 2,
}


@dataclass(frozen=True, slots=True)
class Question:
    """A model of the catalogue on nodes of 8 A100, at most so many sequences a step, and its goal in CPU seconds."""

    model: str
    nodes: int
    sequences: int
    goal: float

    @property
    def instance(self) -> Instance:
        """Return the instance: one site, nothing to choose but the layout."""
        return load_instance(
            {
                "name": self.model,
                "objective": {"minimize": "days_to_train"},
                "limits": {"max_batch_tokens": self.sequences * SEQUENCE},
                "workload": {
                    "model": self.model,
                    "tokens": 3e11,
                    "sequence_length": SEQUENCE,
                    "software": "megatron-lm-2022",
                    "precision": HALF,
                },
                "hardware": {"accelerator": "A100-80GB", "rack": "DGX-A100", "racks": self.nodes},
            }
        )


QUESTIONS = (
    Question("gpt3-175b", 384, 1536, 0.7),
    Question("turing-530b", 384, 2520, 0.7),
    Question("megatron-1t", 384, 3072, 1.0),
)


def solved(instance: Instance) -> tuple[JointSolution, float]:
    """Solve an instance, and return the CPU seconds that it took."""
    started = time.process_time()
    return solve_joint(instance, Solving()), time.process_time() - started


def main() -> None:
    """Print a line for each question, and where asked what its calls take."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--profile", action="store_true", help="print the calls of one more run")
    given = parser.parse_args()
    for q in QUESTIONS:
        instance = q.instance
        runs = [solved(instance) for _ in range(given.repeats)]
        x, seconds = runs[0][0], sorted(s for _, s in runs)
        took = f"{seconds[0]:.2f} to {seconds[-1]:.2f} CPU-s of {len(runs)} (goal {q.goal})"
        found = x.status if x.days is None else f"{x.status}, {x.days:,.3f} days"
        print(f"{q.model:12} {8 * q.nodes:,} A100: {took}; {found}", flush=True)
        if given.profile:
            with cProfile.Profile() as profile:
                solved(instance)
            pstats.Stats(profile).sort_stats("tottime").print_stats(SHOWN)


if __name__ == "__main__":
    main()
