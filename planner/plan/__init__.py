"""The plan that a solve returns: decisions, metrics, certificates, and its views, which the layers above provide."""

from collections.abc import Callable
from typing import Any

VIEWS: dict[str, Callable[..., Any]] = {}  # functions that show a plan, by name; `import planner` fills it
