"""Renew the constants that catalogue entries without measured rows take over from one that has them.

    python scripts/calibration/taken_over.py

A source that starts with "taken over from NAME" says so of its figure. To be run behind calibrate.py --fit --write.
"""

import json
import re
from pathlib import Path
from typing import Any

from planner.calibration.catalogue_files import laid_out

CATALOGUE = Path(__file__).resolve().parents[2] / "planner" / "catalogue"
FROM = re.compile(r"taken over from ([\w.-]*\w)")
FITTED, OWN_PARTS = "Fitted", ("source", "max_share")


def donor_of(entry: dict[str, Any]) -> str | None:
    """Return the entry from which figures are taken over, or None."""
    source = entry.get("source")
    texts = source.values() if isinstance(source, dict) else ()
    return next((found[1] for text in texts if (found := FROM.match(text))), None)


def renewed(entry: dict[str, Any], donor: dict[str, Any]) -> dict[str, Any]:
    """Return an entry with the fitted figures of another, but for those that have a source of their own."""
    fitted = {k for k, text in donor["source"].items() if text.startswith(FITTED)}
    words = next(text for text in entry["source"].values() if FROM.match(text))
    taken = {k for k in fitted if FROM.match(entry["source"].get(k, words))}
    new = entry | {k: donor[k] for k in donor if k in taken}
    new["source"] = entry["source"] | {k: entry["source"].get(k, words) for k in donor if k in taken}
    if "gemm_efficiency" in entry:
        new["gemm_efficiency"] = _products(entry["gemm_efficiency"], donor["gemm_efficiency"])
    last = {k: new.pop(k) for k in ("note", "source") if k in new}
    return new | last


def _products(own: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return what is known of products: shares of the peak unless they are measured, and all else from another."""
    shares = other["max_share"] if FROM.match(own["source"]) else own["max_share"]
    rest = {k: v for k, v in other.items() if k not in OWN_PARTS}
    return {"max_share": {k: shares[k] for k in own["max_share"]}, **rest, "source": own["source"]}


def main() -> None:
    """Renew both files."""
    for kind in ("accelerators", "software"):
        path = CATALOGUE / f"{kind}.json"
        entries = json.loads(path.read_text(encoding="utf-8"))
        for name, entry in entries.items():
            donor = donor_of(entry)
            if donor is not None:
                entries[name] = renewed(entry, entries[donor])
        path.write_text(laid_out(entries), encoding="utf-8")


if __name__ == "__main__":
    main()
