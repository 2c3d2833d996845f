"""Parts of a page: its template and style sheet, tables with their figures, pictures and headlines."""

from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from planner.errors import needed

if TYPE_CHECKING:
    import jinja2

PAGE_CSS = (files("planner.report") / "data" / "page.css").read_text(encoding="utf-8")  # of all pages


class PageFigure(NamedTuple):
    """A figure of a plan as text on its page, with its path and exact value, which let a reader check it."""

    path: str
    value: Any
    text: str


PageCell = str | PageFigure
PageRow = tuple[PageCell, ...]


class PageTable(NamedTuple):
    """A table of a page; `text_columns` hold text instead of figures."""

    caption: str
    head: tuple[str, ...]
    rows: Sequence[PageRow]
    text_columns: tuple[str, ...] = ()


class Picture(NamedTuple):
    """A drawing or chart of a page as SVG, and its caption."""

    svg: str
    caption: str


class Headline(NamedTuple):
    """A headline figure of a page: its likely range in words, and as shares of the bar that it is drawn in."""

    label: str
    figure: PageFigure
    range: str
    low: float
    high: float
    at: float


def template(command: str, name: str) -> "jinja2.Template":
    """Return a page's HTML template by its path in the package. InputError: jinja2 is not installed for a command."""
    with needed(command, "jinja2", "report"):
        import jinja2
    loader = jinja2.PackageLoader("planner", "")
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.globals["style"] = PAGE_CSS
    environment.tests["figure"] = lambda value: isinstance(value, PageFigure)
    environment.tests["picture"] = lambda value: isinstance(value, Picture)
    return environment.get_template(name)
