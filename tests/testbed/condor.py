"""What HTCondor is told: the configuration of a pool whose slots are all on one machine.

Each slot says what it is by `RtClass` and `RtSpeed`. Addresses never leave the sandbox, whose
network is its own, so every pool uses the same ports.

References
----------
HTCondor manual, "Configuration Macros" (`SLOT_TYPE_<N>`, `SLOT<N>_...`, `<DaemonName>_ARGS` with
`-local-name`, `DedicatedScheduler`), "Security" (`use security:recommended`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

FRAGMENTS = Path(__file__).parents[2] / "rtsched" / "adapters" / "condor" / "config"
HOST = "head.testbed"
SPEEDS = {"fast": 2.0, "slow": 1.0, "large": 1.0}

STANDARD: dict[str, str] = {
    "CONDOR_HOST": HOST,
    "NETWORK_HOSTNAME": HOST,
    "NETWORK_INTERFACE": "127.0.0.1",
    "UID_DOMAIN": "testbed",
    "FILESYSTEM_DOMAIN": "testbed",
    "SEC_DEFAULT_AUTHENTICATION_METHODS": "FS, IDTOKENS",
    "STARTER_ALLOW_RUNAS_OWNER": "True",
    # Everything soon: tests wait for it.
    "NEGOTIATOR_INTERVAL": "5",
    "NEGOTIATOR_CYCLE_DELAY": "2",
    "NEGOTIATOR_MIN_INTERVAL": "1",
    "SCHEDD_INTERVAL": "5",
    "SCHEDD_MIN_INTERVAL": "1",
    "JOB_START_COUNT": "50",
    "UPDATE_INTERVAL": "10",
    "NEGOTIATOR_UPDATE_INTERVAL": "10",
    "CLASSAD_LIFETIME": "30",
    "MASTER_BACKOFF_CONSTANT": "1",
    "MASTER_BACKOFF_CEILING": "4",
    "CLAIM_WORKLIFE": "0",
    # A job runs to its end, whatever its rank and its user's priority.
    "START": "True",
    "SUSPEND": "False",
    "WANT_SUSPEND": "False",
    "PREEMPT": "False",
    "KILL": "False",
    "NEGOTIATOR_CONSIDER_PREEMPTION": "False",
    "MAX_JOBS_RUNNING": "1000",
    # What a sandbox lacks.
    "BASE_CGROUP": "",
    "STARTD_DETECT_GPUS": "False",
    "STARTD_HAS_BAD_UTMP": "True",
    "RUNBENCHMARKS": "False",
    "MAIL": "/bin/true",
}

PARALLEL = f"""\
DedicatedScheduler = "DedicatedScheduler@{HOST}"
STARTD_ATTRS = $(STARTD_ATTRS) DedicatedScheduler
RANK = (Scheduler =?= $(DedicatedScheduler)) * 10
"""

OWN_PROCD = "STARTER.PROCD_ADDRESS = $ENV(CONDOR_PROCD_ADDRESS_BASE)"
"""Starters use the procd of their startd. With one for all machines, most startds were seen to wait
for its answer while many jobs started."""


@dataclass(frozen=True)
class PoolOptions:
    """What may differ from one pool to the next.

    Attributes
    ----------
    fast, slow, large : int
        How many static slots of one CPU there are, in this order, with `RtClass` "fast", "slow" or
        "large" and `RtSpeed` 2.0 or 1.0. One startd has them all: slot1@head.testbed, ...
    startds : bool
        One startd per slot, each its own machine: slot1@fast1.testbed, ... (10 s to start).
    partitionable : (int, int), optional
        In place of static slots: CPUs per partitionable slot, and how many of them there are; they
        have `RtClass` "slow" and `RtSpeed` 1.0.
    hardware : mapping of str to mapping of str to str
        Settings of the startds of each kind, such as {"fast": {"NUM_CPUS": "16"}}; with `startds`.
        Each has one partitionable slot of all that it has.
    parallel : bool
        Take jobs of the parallel universe (DedicatedScheduler).
    settings : mapping of str to str
        Lines of the configuration in place of, or beside, the standard ones.
    config : mapping of str to str
        Names and texts of further files in /etc/condor/config.d, such as our `fragments`; with
        50-rtsched.conf the schedd comes to know the user rtsched (on trixie by job 1, removed).
    library : bool
        Compile contrib/condor and install it; naming it in CLASSAD_USER_LIBS is left to `config`.
    """

    fast: int = 5
    slow: int = 25
    large: int = 0
    startds: bool = False
    partitionable: tuple[int, int] | None = None
    hardware: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    parallel: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    library: bool = False

    @property
    def nodes(self) -> list[str]:
        """What each slot is: fast1, ..., slow1, ..., large1, ...; of `partitionable`: slow1, ..."""
        counts = {"fast": self.fast, "slow": self.slow, "large": self.large}
        if self.partitionable:
            counts = {"slow": self.partitionable[1]}
        return [f"{kind}{number + 1}" for kind, count in counts.items() for number in range(count)]

    @property
    def machines(self) -> list[str]:
        """Names of the machines, one per startd."""
        return [f"{node}.testbed" for node in self.nodes] if self.startds else [HOST]

    @property
    def slots(self) -> list[str]:
        """The `Name` of each slot, in the order of `nodes`."""
        if self.startds:
            return [f"slot1@{machine}" for machine in self.machines]
        return [f"slot{number + 1}@{HOST}" for number in range(len(self.nodes))]

    def files(self) -> dict[str, str]:
        """Return the files of /etc/condor/config.d by name, and /etc/hosts."""
        lines = [*_assigned(STANDARD), *self._slots(), PARALLEL if self.parallel else ""]
        # Before the site's own, which can so say otherwise.
        found = {"10-testbed.conf": "\n".join([*lines, *_assigned(self.settings), ""])}
        found |= dict(self.config)
        files = {f"/etc/condor/config.d/{name}": text for name, text in found.items()}
        names = " ".join(dict.fromkeys([HOST, *self.machines]))
        return files | {"/etc/hosts": f"127.0.0.1 localhost {names} head\n"}

    def _slots(self) -> list[str]:
        cpus = self.partitionable[0] if self.partitionable else 1
        count = 1 if self.startds else len(self.nodes)
        lines = [
            "STARTD_ATTRS = $(STARTD_ATTRS) RtClass RtSpeed",
            f"NUM_CPUS = {cpus * count}",
            f"MEMORY = {512 * cpus * count}",
            f"SLOT_TYPE_1 = {'100%' if self.hardware else f'cpus={cpus}'}",
            f"NUM_SLOTS_TYPE_1 = {count}",
            f"SLOT_TYPE_1_PARTITIONABLE = {bool(self.partitionable or self.hardware)}",
        ]
        if self.startds:
            lines.append(OWN_PROCD)
        names = [f"STARTD_{node.upper()}" for node in self.nodes] if self.startds else ["STARTD"]
        daemons = ["MASTER", "SHARED_PORT", "COLLECTOR", "NEGOTIATOR", "SCHEDD", *names]
        lines.append(f"DAEMON_LIST = {', '.join(daemons)}")
        for number, node in enumerate(self.nodes):
            lines += _startd(node) if self.startds else []
            prefix = f"{node}." if self.startds else f"SLOT{number + 1}_"
            kind = node.rstrip("0123456789")
            lines += [f'{prefix}RtClass = "{kind}"', f"{prefix}RtSpeed = {SPEEDS[kind]}"]
            own = self.hardware.get(kind, {})
            lines += _assigned({f"{prefix}{name}": value for name, value in own.items()})
        return lines


def _assigned(settings: Mapping[str, str]) -> list[str]:
    return [f"{name} = {value}" for name, value in settings.items()]


def fragments() -> dict[str, str]:
    """Return our own configuration files, by name, as `PoolOptions.config` takes them."""
    return {path.name: path.read_text() for path in sorted(FRAGMENTS.glob("*.conf"))}


def _startd(node: str) -> list[str]:
    """Return what makes another startd of its own machine."""
    name = f"STARTD_{node.upper()}"
    return [
        f"{name} = $(STARTD)",
        f"{name}_ARGS = -f -local-name {node}",
        f"{node}.NETWORK_HOSTNAME = {node}.testbed",
        f"{node}.STARTD_LOG = $(LOG)/StartLog.{node}",
        f"{node}.STARTD_ADDRESS_FILE = $(LOG)/.startd_address.{node}",
        f"{node}.EXECUTE = /var/lib/condor/execute/{node}",
        # Each machine has a procd of its own, as on a real site (`OWN_PROCD`).
        f"{node}.PROCD_ADDRESS = $(LOCK)/procd_pipe.{node}",
        f"{node}.PROCD_LOG = $(LOG)/ProcLog.{node}",
    ]
