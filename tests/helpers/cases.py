"""Many tiny cases of a test as one item: pytest takes longer to begin and end an item than such a case runs."""

import inspect
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any


def cases(names: str | tuple[str, ...], values: Iterable[Any], ids: Any = None) -> Callable[[Any], Any]:  # noqa: ARG001
    """Run a test over cases as `parametrize` does, in one item: a failure names its case.

    Each case has a folder and patches of its own.
    """
    single = isinstance(names, str) and "," not in names
    argnames = tuple(x.strip() for x in names.split(",")) if isinstance(names, str) else names
    made = [dict(zip(argnames, (x,) if single else x, strict=True)) for x in values]
    assert made

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        def each(**fixtures: Any) -> None:
            for i, case in enumerate(made):
                own = fixtures | case
                with ExitStack() as stack:
                    if "tmp_path" in own:
                        own["tmp_path"] = own["tmp_path"] / str(i)
                        own["tmp_path"].mkdir()
                    if "monkeypatch" in own:
                        own["monkeypatch"] = stack.enter_context(own["monkeypatch"].context())
                    try:
                        test(**own)
                    except BaseException as failure:
                        failure.add_note(f"case {i}: {case}")
                        raise

        signature = inspect.signature(test)
        left = [p for name, p in signature.parameters.items() if name not in argnames]
        each.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        each.__name__, each.__doc__, each.__module__ = test.__name__, test.__doc__, test.__module__
        return each

    return decorate
