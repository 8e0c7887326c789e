"""Settings of the daemon, and the site.toml of a site that is live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from rtsched.adapters.condor import CondorSettings
from rtsched.adapters.live import PART
from rtsched.adapters.slurm import SlurmSettings
from rtsched.core.config import Mode  # noqa: TC001 - read by msgspec
from rtsched.replay.policies import Site

if TYPE_CHECKING:
    from rtsched.model.jobs import Jobs


class DaemonSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `[daemon]` table."""

    system: Annotated[
        Literal["slurm", "condor"], Meta(description="The batch system that runs here.")
    ] = "slurm"
    database: Annotated[
        str, Meta(description="Where promises are kept (SQLite); its directory must be writable.")
    ] = "/var/lib/rtsched/rtsched.db"
    standby: Annotated[
        bool,
        Meta(
            description="A daemon runs on the host of each slurmctld, and `database` is in a "
            "directory that they share; the one whose slurmctld has control is active, the others "
            "are on standby. For Slurm."
        ),
    ] = False
    durable: Annotated[
        Literal["full", "normal"],
        Meta(
            description="`full`: a promise is on the disk before its user reads it. `normal`: it "
            "survives the daemon's death at once, a power failure only after some seconds."
        ),
    ] = "full"
    run: Annotated[
        str, Meta(description="Directory of the sockets `submit.sock` and `query.sock`.")
    ] = "/run/rtsched"
    cycle: Annotated[
        float,
        Meta(gt=0, description="Seconds between two looks at the batch system, at the most."),
    ] = 5.0
    patience: Annotated[
        float, Meta(gt=0, description="Seconds that the batch system may take to answer.")
    ] = 30.0
    stale: Annotated[
        float,
        Meta(
            gt=0,
            description="With a look older than these seconds nobody is judged; the filter then "
            "does what its own setting `on_failure` says.",
        ),
    ] = 60.0
    lapse: Annotated[
        float,
        Meta(
            gt=0,
            description="Seconds after which an admission lapses whose job never appeared.",
        ),
    ] = 60.0
    offer: Annotated[
        float,
        Meta(ge=0, description="Seconds for which a counter-offer is held for its user; 0: never."),
    ] = 60.0
    offers_per_user: Annotated[
        int,
        Meta(ge=0, description="Counter-offers held for one user at a time; the oldest gives way."),
    ] = 1
    unused_offers_per_hour: Annotated[
        int,
        Meta(
            ge=0,
            description="After so many offers in an hour that a user did not take, rejections "
            "still name a feasible deadline, and hold nothing: held offers keep nodes from others.",
        ),
    ] = 10
    unused_promises_per_hour: Annotated[
        int,
        Meta(
            ge=0,
            description="After so many admissions in an hour that came to no job, as with "
            "`sbatch --test-only`, a user is promised nothing for a while; 0: any number.",
        ),
    ] = 20
    promises_per_user: Annotated[
        int, Meta(ge=0, description="Promises that one user may have at a time; 0: any number.")
    ] = 0
    late_starters: Annotated[
        Literal["requeue", "leave"],
        Meta(
            description="A best-effort job may start on planned nodes in the moment before they "
            "are reserved. `requeue`: if a promise could not be kept otherwise, a job that may be "
            "requeued and has just started is; `leave`: it stays, and the promise may break."
        ),
    ] = "requeue"
    restart_exit_codes: Annotated[
        list[Annotated[int, Meta(ge=1, le=255)]],
        Meta(
            description="A promised job that fails with one of these exit codes is queued again, "
            "if a plan has room for all of its run before its deadline. For Slurm; in HTCondor a "
            "job says that itself, by max_retries."
        ),
    ] = []
    restarts: Annotated[
        int,
        Meta(
            ge=1,
            description="A job that Slurm has queued again as often (`Restarts` of `scontrol show "
            "job`, after lost nodes too) is not queued again for its exit code.",
        ),
    ] = 1
    filters: Annotated[
        list[str] | None,
        Meta(
            description="Users who may ask for verdicts: those that slurmctld or the schedd runs "
            "as. Not given: root, and slurm or condor."
        ),
    ] = None
    filter_group: Annotated[
        str | None,
        Meta(
            description="Group that may connect to `submit.sock`; the daemon must be a member. "
            "Empty: everybody may connect, and those who are not in `filters` are sent away. Not "
            "given: slurm or condor."
        ),
    ] = None
    admins: Annotated[
        list[str], Meta(description="Users who may see everybody's promises, beside root.")
    ] = []
    history_days: Annotated[
        float, Meta(gt=0, description="Days for which closed promises are kept in the database.")
    ] = 90.0
    metrics_port: Annotated[
        int, Meta(ge=0, le=65535, description="Port on localhost for Prometheus; 0: none.")
    ] = 0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="What is logged.")
    ] = "info"

    def asking_users(self) -> list[str]:
        """Return the users who may ask for verdicts."""
        return [self.system, "root"] if self.filters is None else self.filters

    def asking_group(self) -> str:
        """Return the group that may connect to the submit filter's socket; empty: everybody."""
        return self.system if self.filter_group is None else self.filter_group


class Scope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[scope]]` table: another mode of plug-ins for some jobs. The last that fits wins."""

    mode: Annotated[Mode, Meta(description="How much the plug-ins' answers count for these jobs.")]
    plugin: Annotated[str | None, Meta(description="The plug-in it is about; none: all.")] = None
    partition: Annotated[
        str | None,
        Meta(description="Jobs of this partition, of a pool of this RtClass; none: of all."),
    ] = None
    qos: Annotated[str | None, Meta(description="Jobs of this QOS; none: of all.")] = None

    def covers(self, partition: str | None, qos: str | None, plugin: str) -> bool:
        """Return whether it says the mode of a plug-in for jobs of a partition and QOS.

        A part of a partition, `name@feature` or `name/size`, is covered as the whole is.
        """
        whole = partition.partition(PART)[0].partition("@")[0] if partition else None
        return (
            self.plugin in {None, plugin}
            and self.partition in {None, whole}
            and self.qos in {None, qos}
        )


class LiveSite(Site, frozen=True, forbid_unknown_fields=True):
    """A site.toml, with what a running daemon needs."""

    daemon: Annotated[DaemonSettings, Meta(description="The daemon.")] = DaemonSettings()
    scope: Annotated[list[Scope], Meta(description="Other modes for some partitions or QOS.")] = (
        msgspec.field(default_factory=list)
    )
    slurm: Annotated[SlurmSettings, Meta(description="How Slurm is read and steered.")] = (
        SlurmSettings()
    )
    condor: Annotated[CondorSettings, Meta(description="How HTCondor is read and steered.")] = (
        CondorSettings()
    )


def chosen_modes(
    jobs: Jobs, plugins: list[tuple[str, Mode]], scopes: list[Scope]
) -> list[tuple[Mode, ...]]:
    """Return for each job the modes of all plug-ins, by the scopes that cover it."""
    known: dict[tuple[str | None, str | None], tuple[Mode, ...]] = {}

    def modes(partition: str | None, qos: str | None) -> tuple[Mode, ...]:
        chosen = dict(plugins)
        for scope in scopes:
            chosen |= {p: scope.mode for p, _ in plugins if scope.covers(partition, qos, p)}
        return tuple(chosen[plugin] for plugin, _ in plugins)

    pairs = zip(jobs.texts("partition"), jobs.texts("qos"), strict=True)
    return [
        known.setdefault(pair, modes(*pair)) if pair not in known else known[pair] for pair in pairs
    ]
