"""Recompute every number of Agache et al. 2024 (arXiv 2407.12819) with the planner's physics and say which hold."""

import argparse
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict

from paper_inputs import Row
from paper_rows import SECTIONS


def number(value: float | None) -> str:
    """Write a number short: four figures below 10,000, separators above, powers of ten beyond."""
    if value is None:
        return "-"
    if value == int(value) and abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"


def table(rows: Iterable[Row]) -> str:
    """Lay the rows out in columns; the reason of a row stands below it."""
    head = f"{'':56} {'paper':>12} {'recomputed':>12} {'ratio':>7} {'right':>12}  verdict"
    lines = [head]
    for row in rows:
        quantity = f"{row.quantity} [{row.unit}]" if row.unit else row.quantity
        ratio = "-" if row.ratio is None else f"{row.ratio:.3g}"
        paper, recomputed, right = number(row.paper), number(row.recomputed), number(row.right)
        lines.append(f"{quantity:56} {paper:>12} {recomputed:>12} {ratio:>7} {right:>12}  {row.verdict}")
        if row.why:
            lines.append(f"    {row.why}")
    return "\n".join(lines)


def main() -> None:
    """Print the rows, as a table or as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--section", choices=SECTIONS, action="append", help="only this part; may be repeated")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    found = {name: list(SECTIONS[name]()) for name in options.section or SECTIONS}
    if options.json:
        print(
            json.dumps(
                [
                    {"section": s, **asdict(r), "ratio": r.ratio, "verdict": r.verdict}
                    for s, rows in found.items()
                    for r in rows
                ],
                indent=2,
            )
        )
        return
    for section, rows in found.items():
        print(f"{section}\n{table(rows)}\n")
    count = Counter(row.verdict.split()[0] for rows in found.values() for row in rows)
    print(
        ", ".join(
            f"{count[k]} {text}"
            for k, text in (
                ("match", "match"),
                ("within", "within rounding"),
                ("inconsistent", "inconsistent"),
                ("not", "not printed"),
            )
        )
    )


if __name__ == "__main__":
    main()
