"""Slurm, live: what a look at it shows, and what it is told.

Tested with Slurm 24.11 and 26.05.
"""

from rtsched.adapters.slurm.settings import SlurmSettings
from rtsched.adapters.slurm.submission import SlurmTranslator
from rtsched.adapters.slurm.system import SlurmSystem

__all__ = ["SlurmSettings", "SlurmSystem", "SlurmTranslator"]
