"""The constants that measured runs fit, each with the range that makes sense and what is known of it beforehand.

A constant belongs to an accelerator or to a software stack. Its centre is what measurements of single operations say,
its spread how far a run may be from it, as a standard deviation of the logarithm: the rows of runs do not tell all
constants apart, and what they do not determine stays near its centre. Sources of centres: kernels that SimuMax
measured on B200 (v1.2, configs/system: products at 0.45 to 0.65 of the dense peak, collectives at 0.60 to 0.74 of
NVLink, 23 to 26 us to start); the FlashAttention papers (0.6 to 0.7 of the peak on A100 and H100, heads of 64 at 0.95
and 0.76 of the rate of those of 128: a softmax_width of 8 and 60; FlashAttention-2, which stacks without Transformer
Engine run, at 0.35 of the peak of H100, where its next version and cuDNN reach 0.6; the first version, whose Triton
kernels llm-foundry runs, at 0.25 to 0.4 of the peak of A100 where the second reaches 0.5 to 0.73: Dao 2023, section
4.1); nccl-tests (0.75 to 0.85 of NVLink
and of NICs); a
fused loss as its kernel counts (8 to 16 bytes a logit), which the recipes of Megatron-Bridge have. A launch here is one
operation of the list, several kernels and the Python of a module: some 0.1 ms of the host without graphs [m];
element-wise work moves 1.2 to 3 times what fused kernels would; starts of experts and of dispatches are orders of size
[m]. What a mechanism costs on one stack says something of it on others: beforehand the logarithms correlate.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from catalogue_files import name_of

from planner.calibration.constants import FittedConstant, Kind
from planner.calibration.fit import Numbers

A100, H100, CAPPED = ("A100-40GB", "A100-80GB"), ("H100", "H200"), ("H100-96GB-500W",)
B200, GB200, B300 = ("B200",), ("GB200",), ("B300", "GB300")
BLACKWELL = (*B200, *GB200)
EVERY = (*A100, *H100, *CAPPED, *BLACKWELL, *B300)
HOPPER, FIFTH = (*H100, *CAPPED), (*BLACKWELL, *B300)  # generations of NVLink
CORE, ZERO_BUBBLE, BRIDGE, BRIDGE_2025, CORE_2024 = (
    "megatron-core",
    "megatron-zero-bubble",
    "megatron-bridge",
    "megatron-core-2025",
    "megatron-core-2024",
)
NEMO_2024 = "nemo-2024"
LM_2022, LM_2021, DEEPSPEED = "megatron-lm-2022", "megatron-lm-2021", "megatron-deepspeed"
FOUNDRY, TITAN = "llm-foundry-fsdp", "torchtitan"
SCRIPTS = (CORE, ZERO_BUBBLE)
TUNED = (BRIDGE, BRIDGE_2025, f"{BRIDGE_2025}-flex", f"{BRIDGE_2025}-overlap")
"""Presets of one library that differ in switches alone."""
OF_2024 = (CORE_2024, NEMO_2024)
ENGINE = (*SCRIPTS, *TUNED, *OF_2024)
"""Stacks on one library of kernels and of collectives."""
OLD = ((LM_2022,), (LM_2021,), (DEEPSPEED,), (FOUNDRY,), (TITAN,))
ALIKE = 0.5  # correlation, before any run, of what a mechanism costs on two stacks
SAME_KERNELS = 0.85  # of what a kernel costs in two years of one library
ONE_LIBRARY = ((LM_2022,), (LM_2021,))
KERNELS = ("score_efficiency", "elementwise_traffic", "loss_bytes_per_logit")


@dataclass(frozen=True, slots=True)
class Known:
    """A constant with what is known of it before any run: its centre, and the spread of its logarithm."""

    constant: FittedConstant
    centre: float
    spread: float


def _known(
    kind: Kind,
    path: str,
    bounds: tuple[float, float],
    usual: tuple[float, float],
    entries: tuple[tuple[str, ...], ...],
    own: dict[str, tuple[float, float]] | None = None,
) -> list[Known]:
    """Return a constant of each group of entries; those named in `own` have another centre and spread."""
    found = []
    for group in entries:
        centre, spread = (own or {}).get(group[0], usual)
        found.append(Known(FittedConstant(kind, group, path, *bounds), centre, spread))
    return found


def _accelerators(
    path: str,
    bounds: tuple[float, float],
    usual: tuple[float, float],
    *entries: tuple[str, ...],
    own: dict[str, tuple[float, float]] | None = None,
) -> list[Known]:
    return _known("accelerators", path, bounds, usual, entries, own)


def _software(
    path: str,
    bounds: tuple[float, float],
    usual: tuple[float, float],
    *stacks: tuple[str, ...],
    own: dict[str, tuple[float, float]] | None = None,
) -> list[Known]:
    """Return a constant of each group of stacks: those that have a mechanism in common share what it costs."""
    return _known("software", path, bounds, usual, stacks, own)


SHARE = (0.15, 0.98)
KNOWN: tuple[Known, ...] = (
    *_accelerators(
        "gemm_efficiency.max_share.bf16",
        SHARE,
        (0.62, 0.04),
        *(A100, H100, CAPPED, B200, GB200, B300),
        own={"A100-40GB": (0.75, 0.3), "H100": (0.7, 0.3), CAPPED[0]: (0.55, 0.15)}
        | {"B200": (0.55, 0.1), "GB200": (0.55, 0.1), "B300": (0.6, 0.15)},
    ),
    *_accelerators(
        "gemm_efficiency.max_share.fp8",
        SHARE,
        (0.64, 0.06),
        *(H100, CAPPED, B200, GB200, B300),
        own={"H100": (0.68, 0.04), CAPPED[0]: (0.5, 0.2)},
    ),
    *_accelerators("gemm_efficiency.max_share.fp4", SHARE, (0.5, 0.08), BLACKWELL, B300),
    *_accelerators(
        "attention_efficiency",
        (0.12, 0.95),
        (0.5, 0.15),
        *(A100, H100, CAPPED, BLACKWELL, B300),
        own={"A100-40GB": (0.65, 0.2), "H100": (0.55, 0.2), CAPPED[0]: (0.45, 0.2), "B300": (0.55, 0.15)},
    ),
    *_accelerators(
        "softmax_width",
        (1.0, 400.0),
        (60.0, 0.4),
        *(A100, HOPPER, FIFTH),
        own={"A100-40GB": (8.0, 0.5), "B200": (150.0, 0.35)},
    ),
    *_accelerators("scale_up_latency_seconds", (5e-7, 4e-5), (5e-6, 0.5), A100, HOPPER, FIFTH),
    *_accelerators("gemm_efficiency.operand_traffic", (0.02, 1.0), (0.5, 0.7), A100, HOPPER, FIFTH),
    *_accelerators("gemm_efficiency.tail_elements", (1e5, 2e7), (2e6, 0.5), A100, HOPPER, FIFTH),
    *_accelerators("gemm_efficiency.unaligned_share", (0.02, 1.0), (0.25, 0.5), A100),
    *_accelerators("hbm_efficiency", (0.4, 0.98), (0.8, 0.12), EVERY),
    *_accelerators("kernel_seconds", (3e-7, 6e-5), (1e-5, 0.5), A100, HOPPER, FIFTH, own={"B200": (4e-6, 0.4)}),
    *_accelerators(
        "scale_up_efficiency",
        (0.3, 0.98),
        (0.8, 0.07),
        *(A100, HOPPER, FIFTH),
        own={"H100": (0.8, 0.1), "B200": (0.74, 0.04)},
    ),
    *_accelerators("nic_efficiency", (0.3, 0.98), (0.8, 0.15), EVERY),
    *_software("attention_share", (0.2, 1.0), (0.6, 0.2), (FOUNDRY,), (TITAN,), own={FOUNDRY: (0.53, 0.3)}),
    *_software("score_efficiency", (0.08, 1.0), (0.4, 0.5), (LM_2022,), (LM_2021,), (DEEPSPEED,)),
    *_software("elementwise_traffic", (0.3, 8.0), (1.7, 0.5), SCRIPTS, TUNED, (CORE_2024,), (NEMO_2024,), *OLD),
    *_software("quantise_traffic", (0.1, 8.0), (1.0, 0.7), (*SCRIPTS, *TUNED, *OF_2024), (FOUNDRY,), (TITAN,)),
    *_software("loss_bytes_per_logit", (4.0, 250.0), (14.0, 0.3), ENGINE, *OLD, own={FOUNDRY: (18.0, 0.8)}),
    *_software("launch_seconds", (1e-6, 4e-4), (1e-4, 0.5), ENGINE, *OLD),
    *_software("collective_seconds", (1e-6, 2e-3), (1e-4, 0.8), ENGINE, *OLD),
    *_software("microbatch_seconds", (1e-5, 3e-2), (1e-3, 1.0), SCRIPTS, TUNED, (CORE_2024,), (NEMO_2024,), *OLD[:3]),
    *_software("pipeline_start_seconds", (1e-6, 1e-2), (3e-5, 1.5), ENGINE, *OLD[:3]),
    *_software("step_seconds", (1e-3, 5e-2), (1e-2, 0.4), SCRIPTS, TUNED, OF_2024, *OLD),
    *_software("tensor_overlap", (0.02, 0.98), (0.6, 0.3), ENGINE, (TITAN,)),
    *_software("data_efficiency", (0.15, 1.0), (0.7, 0.3), ENGINE, (DEEPSPEED,)),
    *_software("sharding_exposed", (0.01, 1.0), (0.3, 0.5), ENGINE, (FOUNDRY,), (TITAN,)),
    *_software("expert_overlap", (0.01, 0.98), (0.6, 0.3), ENGINE),
    *_software("all_to_all_seconds", (1e-6, 5e-3), (1e-4, 1.0), ENGINE),
    *_software("deep_ep_seconds", (1e-6, 5e-3), (1e-4, 1.0), ENGINE),
    *_software("hybrid_ep_seconds", (1e-6, 5e-3), (1e-4, 1.0), ENGINE),
    *_software("expert_seconds", (1e-7, 2e-4), (5e-6, 0.7), ENGINE),
    *_software("expert_cast_seconds", (1e-7, 2e-4), (2e-5, 0.7), ENGINE),
    *_software("overlap_launch_seconds", (1e-6, 2e-3), (3e-4, 0.5), ENGINE),
    *_software("expert_efficiency", (0.15, 1.0), (0.8, 0.1), ENGINE),
)
CONSTANTS: tuple[FittedConstant, ...] = tuple(k.constant for k in KNOWN)


def whitened(known: Sequence[Known]) -> Numbers:
    """Return the root of the inverse of the prior covariance of the constants' logarithms.

    A stack that no row has takes of each mechanism's cost what the rows of others say of it: the partial pooling of a
    hierarchical model (Gelman and Hill 2007, chapter 12). Constants of accelerators are known from kernels, and errors
    on sources left out are no smaller where they are pooled too.
    """
    constants = [k.constant for k in known]
    mechanism = [c.path if c.kind == "software" else name_of(c) for c in constants]
    kernels = [c.path in KERNELS and c.entries in ONE_LIBRARY for c in constants]
    alike = np.where(np.outer(kernels, kernels), SAME_KERNELS, ALIKE) * np.equal.outer(mechanism, mechanism)
    np.fill_diagonal(alike, 1.0)
    spreads = np.array([k.spread for k in known])
    sizes, axes = np.linalg.eigh(alike * np.outer(spreads, spreads))
    return np.asarray(axes / np.sqrt(sizes) @ axes.T)
