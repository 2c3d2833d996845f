"""Many tiny cases of a property as one test, since each test that pytest counts costs more than such a case."""

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any


def each(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for every case in turn, as `pytest.mark.parametrize` takes names and cases; a failure names its case.

    What a case patched is undone before the next.
    """
    listed = [names] if isinstance(names, str) else list(names)
    every = [dict(zip(listed, (x,) if isinstance(names, str) else x, strict=True)) for x in cases]

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def run(**fixtures: Any) -> None:
            for case in every:
                try:
                    test(**fixtures, **case)
                except BaseException as failed:
                    failed.add_note(f"in the case {case}")
                    raise
                if "monkeypatch" in fixtures:
                    fixtures["monkeypatch"].undo()

        left = [p for name, p in inspect.signature(test).parameters.items() if name not in listed]
        run.__signature__ = inspect.Signature(left)
        return run

    assert every, "there is no case"
    return decorated
