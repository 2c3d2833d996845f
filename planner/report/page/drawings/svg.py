"""Small SVG: elements as text, drawn by style classes, so that light, dark and print need no second picture."""

from html import escape

WIDTH = 420.0  # of every drawing, in units: on a phone a letter of 11 units stays readable


def el(tag: str, content: str = "", **attributes: str | float) -> str:
    """Return one element; `cls` is its class, an underscore in a name is a dash."""
    names = {"cls": "class"}
    told = "".join(f' {names.get(k, k.replace("_", "-"))}="{escape(shown(v))}"' for k, v in attributes.items())
    return f"<{tag}{told}>{content}</{tag}>" if content else f"<{tag}{told}/>"


def shown(value: str | float) -> str:
    """Write a coordinate in a tenth of a unit."""
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def rect(x: float, y: float, width: float, height: float, cls: str, told: str = "") -> str:
    """Return a box; `told` shows when it is pointed at."""
    tip = el("title", escape(told)) if told else ""
    return el("rect", tip, x=x, y=y, width=max(width, 0.0), height=height, cls=cls)


def text(x: float, y: float, content: str, cls: str = "", anchor: str = "start") -> str:
    """Return a line of text; `anchor` is start, middle or end."""
    return (
        el("text", escape(content), x=x, y=y, cls=cls, text_anchor=anchor)
        if cls
        else el("text", escape(content), x=x, y=y, text_anchor=anchor)
    )


def line(x1: float, y1: float, x2: float, y2: float, cls: str) -> str:
    """Return a straight line."""
    return el("line", x1=x1, y1=y1, x2=x2, y2=y2, cls=cls)


def path(points: list[tuple[float, float]], cls: str, *, closed: bool = False) -> str:
    """Return a polyline."""
    told = "M" + "L".join(f"{shown(x)} {shown(y)}" for x, y in points) + ("Z" if closed else "")
    return el("path", d=told, cls=cls)


def drawing(height: float, alt: str, content: str, width: float = WIDTH) -> str:
    """Return the whole picture with its description."""
    return el(
        "svg",
        el("title", escape(alt)) + content,
        viewBox=f"0 0 {shown(width)} {shown(height)}",
        role="img",
        xmlns="http://www.w3.org/2000/svg",
    )
