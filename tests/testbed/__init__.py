"""A real Slurm or HTCondor on one machine, for tests and for people who want to try things.

A *sandbox* is a changed root over stacked *layers* (directories made once and kept), in private
namespaces, so that ports, processes and mounts never meet those of the machine or of another
sandbox. A *cluster* is a sandbox in which Slurm's daemons, and ours, run; a *pool* is one in which
HTCondor's do.
"""

from testbed.box import Box, SubmitError
from testbed.cluster import Cluster
from testbed.condor import PoolOptions, fragments
from testbed.errors import TestbedError
from testbed.images import unavailable
from testbed.pool import Pool
from testbed.sandbox import Sandbox
from testbed.slurm import SlurmOptions

__all__ = [
    "Box",
    "Cluster",
    "Pool",
    "PoolOptions",
    "Sandbox",
    "SlurmOptions",
    "SubmitError",
    "TestbedError",
    "fragments",
    "unavailable",
]
