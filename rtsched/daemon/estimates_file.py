"""The file with the past and the record of estimates, beside the database.

It holds the estimator as Python pickles it, behind a line with the release and a checksum. Only the
daemon's own user may write there; a file of another user is not read.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from typing import TYPE_CHECKING

import structlog

from rtsched import __version__
from rtsched.adapters.files import replace_file
from rtsched.estimates import Estimator

if TYPE_CHECKING:
    from pathlib import Path

    from rtsched.estimates import EstimateSettings
    from rtsched.simulator.settings import ExclusiveSettings

log = structlog.get_logger(__name__)

FORM = "rtsched estimates 4"


class EstimatesFile:
    """Where an estimator is kept between two processes.

    Parameters
    ----------
    path : Path
        The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._problem = ""

    def read(
        self, settings: EstimateSettings, system: ExclusiveSettings | None
    ) -> tuple[Estimator, float] | None:
        """Return the estimator, and until when it knows the past, seconds since the epoch.

        None: there is no file, or none that can be used, which is logged.
        """
        try:
            with self.path.open("rb") as file:
                if os.fstat(file.fileno()).st_uid != os.geteuid():
                    raise ValueError("it is another user's")
                head, body = file.readline().decode("ascii").rstrip("\n"), file.read()
            if head != _head(body):
                raise ValueError("it is damaged or of another release")
            estimator, until = pickle.loads(body)  # noqa: S301 - our own file, checked above
            if not isinstance(estimator, Estimator):
                raise TypeError("it holds no estimator")
            estimator.settings = settings
            estimator.system = Estimator(settings, system).system
        except FileNotFoundError:
            return None
        except Exception as error:  # whatever the file holds: the past is read again
            log.warning(
                "estimates_file_not_read",
                path=str(self.path),
                error=f"{error}; past and record of estimates begin anew",
            )
            return None
        return estimator, float(until)

    def write(self, estimator: Estimator, until: float) -> None:
        """Write it in place of the one before; a problem is logged once."""
        try:
            body = pickle.dumps((estimator, until), protocol=5)
            replace_file(self.path, f"{_head(body)}\n".encode("ascii") + body)
        except Exception as error:  # it is written again later
            if str(error) != self._problem:
                log.warning("estimates_file_not_written", path=str(self.path), error=str(error))
            self._problem = str(error)
        else:
            self._problem = ""


def _head(body: bytes) -> str:
    return f"{FORM} {__version__} {hashlib.sha256(body).hexdigest()}"
