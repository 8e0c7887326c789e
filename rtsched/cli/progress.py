"""Progress bars on standard error, with an estimate of the time left."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from rtsched.cli.common import console

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Bars:
    """One bar per step; silent where nobody watches."""

    def __init__(self, wanted: bool) -> None:
        out = console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=out,
            disable=not (wanted and out.is_terminal),
            transient=True,
        )

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._progress.stop()

    @contextmanager
    def step(self, name: str) -> Iterator[Callable[[float], None]]:
        """Show a step; its length is unknown until the yielded function tells a fraction."""
        task = self._progress.add_task(name, total=None)

        def tell(fraction: float) -> None:
            self._progress.update(task, total=1.0, completed=fraction)

        yield tell
        tell(1.0)
