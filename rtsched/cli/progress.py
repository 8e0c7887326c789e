"""Progress bars on standard error, with an estimate of the time left."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rtsched.cli.common import console

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console
    from rich.progress import Progress


class Bars:
    """One bar per step; silent where nobody watches."""

    def __init__(self, wanted: bool) -> None:
        out = console(stderr=True)
        self._progress = _bars(out) if wanted and out.is_terminal else None

    def __enter__(self) -> Bars:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    @contextmanager
    def step(self, name: str) -> Iterator[Callable[[float], None]]:
        """Show a step; its length is unknown until the yielded function tells a fraction."""
        bars = self._progress
        if bars is None:
            yield lambda _fraction: None
            return
        task = bars.add_task(name, total=None)

        def tell(fraction: float) -> None:
            bars.update(task, total=1.0, completed=fraction)

        def compiling(begun: bool) -> None:
            bars.update(task, description=f"{name} (compiling, once)" if begun else name)

        with compiling_told(compiling):
            yield tell
        tell(1.0)


@contextmanager
def compiling_told(tell: Callable[[bool], None]) -> Iterator[None]:
    """Call `tell` with True when numba begins to compile in this process, and False at its end.

    What it finds in its cache it does not compile.
    """
    from rtsched.kernels.compiling import numba

    if numba is None:
        yield
        return
    from numba.core import event

    class Listener(event.Listener):  # type: ignore[misc]
        """One compiled function has others compiled: only the outermost counts."""

        depth = 0

        def on_start(self, _event: object) -> None:
            self.depth += 1
            if self.depth == 1:
                tell(True)

        def on_end(self, _event: object) -> None:
            self.depth -= 1
            if self.depth == 0:
                tell(False)

    with event.install_listener("numba:compile", Listener()):
        yield


def _bars(out: Console) -> Progress:
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=out,
        transient=True,
    )
