"""Many tiny cases of a property as one test, since each test that pytest counts costs more than such a case."""

import inspect
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import wraps
from typing import Any

import pytest

PARAM = type(pytest.param())


def each(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for every case in turn, as `pytest.mark.parametrize` takes names and cases; a failure names its case.

    Each case has a folder and patches of its own.
    """
    listed = [names] if isinstance(names, str) else list(names)
    named = [(x.id, x.values) if isinstance(x, PARAM) else (repr(x), [x] if len(listed) == 1 else x) for x in cases]
    every = [(name, dict(zip(listed, values, strict=True))) for name, values in named]

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def run(**fixtures: Any) -> None:
            for i, (name, case) in enumerate(every):
                own = fixtures | case
                with ExitStack() as patches:
                    if "tmp_path" in own:
                        own["tmp_path"] /= str(i)
                        own["tmp_path"].mkdir()
                    if "monkeypatch" in own:
                        own["monkeypatch"] = patches.enter_context(own["monkeypatch"].context())
                    try:
                        test(**own)
                    except BaseException as failed:
                        failed.add_note(f"in the case {name:.400}")
                        raise

        left = [p for name, p in inspect.signature(test).parameters.items() if name not in listed]
        run.__signature__ = inspect.Signature(left)
        return run

    assert every, "there is no case"
    return decorated
