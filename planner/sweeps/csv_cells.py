"""Texts in CSV cells that a spreadsheet would run as formulas: escaped by an apostrophe, and read back."""

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how a cell begins that a spreadsheet computes


def escaped(text: str) -> str:
    """Return a text for a cell: with an apostrophe before it where it begins like a formula and is no number."""
    return f"'{text}" if text.lstrip("'").startswith(FORMULA) and not _is_number(text) else text


def unescaped(cell: str) -> str:
    """Return the text that a cell was made of."""
    return cell[1:] if cell.startswith("'") and cell.lstrip("'").startswith(FORMULA) else cell


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
