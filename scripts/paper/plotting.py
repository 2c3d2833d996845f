"""Draw a picture where matplotlib is installed (`pip install -e '.[plot]'`); scripts print their figures anyway."""

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def write_picture(path: Path | None, size: tuple[float, float], draw: Callable[[Any], None]) -> None:
    """Draw on one pair of axes and write the file, or say why there is none."""
    if path is None:
        return
    if importlib.util.find_spec("matplotlib") is None:
        print(f"{path}: not written, since matplotlib is not installed (pip install -e '.[plot]')")
        return
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=size, layout="constrained")
    draw(axes)
    figure.savefig(path, dpi=150)
    print(f"wrote {path}")


def row(cells: Sequence[object], widths: Sequence[int]) -> str:
    """Align a row of a table to the right."""
    return " ".join(
        f"{c:>{w}.2f}" if isinstance(c, float) else f"{c!s:>{w}}" for c, w in zip(cells, widths, strict=True)
    )
