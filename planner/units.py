"""How figures read: units that suit their size."""


def money(usd: float) -> str:
    """Write dollars in the largest unit that suits."""
    for unit, size in (("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if abs(usd) >= size:
            return f"${usd / size:,.2f}{unit}"
    return f"${usd:,.0f}"
