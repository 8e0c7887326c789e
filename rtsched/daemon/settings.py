"""Settings of the daemon, and the site.toml of a site that is live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from rtsched.adapters.condor import CondorSettings
from rtsched.adapters.live import PART
from rtsched.adapters.slurm import SlurmSettings
from rtsched.core.config import Mode  # noqa: TC001 - read by msgspec
from rtsched.estimates.settings import EstimateSettings
from rtsched.replay.policies import Site

if TYPE_CHECKING:
    from rtsched.model.jobs import Jobs


class DaemonSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `[daemon]` table."""

    system: Annotated[
        Literal["slurm", "condor"], Meta(description="The batch system that runs here.")
    ] = "slurm"
    database: Annotated[
        str, Meta(description="Database of promises (SQLite); its directory must be writable.")
    ] = "/var/lib/rtsched/rtsched.db"
    standby: Annotated[
        bool,
        Meta(
            description="One daemon runs on each slurmctld host, with `database` in a shared "
            "directory; the one whose slurmctld has control is active, the others are on standby. "
            "Slurm only."
        ),
    ] = False
    durable: Annotated[
        Literal["full", "normal"],
        Meta(
            description="`full`: a promise is on disk before the user sees it. `normal`: it "
            "survives a crash of the daemon at once, a power failure only after some seconds."
        ),
    ] = "full"
    run: Annotated[
        str, Meta(description="Directory of the sockets `submit.sock` and `query.sock`.")
    ] = "/run/rtsched"
    cycle: Annotated[
        float,
        Meta(gt=0, description="Maximum seconds between polls of the batch system."),
    ] = 5.0
    patience: Annotated[
        float, Meta(gt=0, description="Timeout of requests to the batch system, seconds.")
    ] = 30.0
    stale: Annotated[
        float,
        Meta(
            gt=0,
            description="When the last poll is older than this many seconds, no job is evaluated; "
            "the submit filter then follows its setting `on_failure`.",
        ),
    ] = 60.0
    lapse: Annotated[
        float,
        Meta(
            gt=0,
            description=(
                "Seconds after which an admission expires if its job never appeared in the queue."
            ),
        ),
    ] = 15.0
    offer: Annotated[
        float,
        Meta(
            ge=0,
            description="Seconds for which a counter-offer is held for its user; 0: it is not "
            "held.",
        ),
    ] = 60.0
    offers_per_user: Annotated[
        int,
        Meta(
            ge=0,
            description="Maximum number of counter-offers held per user; a new one replaces "
            "the oldest.",
        ),
    ] = 1
    menu_ms: Annotated[
        float,
        Meta(
            ge=0,
            description="Milliseconds for which alternatives to a rejected job are searched while "
            "its user waits; less if others wait. Odds are worked out meanwhile, and waited for as "
            "`wait` of `[likely]` says. 0: only a later deadline is offered.",
        ),
    ] = 10.0
    unused_offers_per_hour: Annotated[
        int,
        Meta(
            ge=0,
            description="After this many offers in an hour that the user did not accept, "
            "rejections still state a feasible deadline but hold nothing: held offers reserve "
            "nodes.",
        ),
    ] = 10
    unused_promises_per_hour: Annotated[
        int,
        Meta(
            ge=0,
            description="After this many admissions in an hour that no job followed, as with "
            "`sbatch --test-only`, the user gets no promise for a while; 0: no limit. A promise "
            "that is cancelled before its job starts counts by what was planned for it: the whole "
            "machine for an hour or more as five.",
        ),
    ] = 20
    promises_per_user: Annotated[
        int, Meta(ge=0, description="Maximum number of promises per user; 0: no limit.")
    ] = 2000
    promised_share_per_user: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="Largest share of a week of the machine that the promised jobs of a user "
            "may take, by size and requested time; 0: no limit.",
        ),
    ] = 0.5
    promised_share_per_account: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="The same of all promised jobs of an account; 0: no limit.",
        ),
    ] = 1.0
    rejected: Annotated[
        Literal["reject", "run"],
        Meta(
            description="What becomes of a job whose deadline cannot be promised, unless its user "
            "chooses (`rtsched:else=`, RtElse). `reject`: it is rejected, with a counter-offer. "
            "`run`: it is accepted without a promise, and runs as best effort, also after its "
            "deadline; it is promised its deadline as soon as there is room."
        ),
    ] = "reject"
    late_starters: Annotated[
        Literal["requeue", "leave"],
        Meta(
            description="A best-effort job may start on planned nodes just before they are "
            "reserved, or run on spare nodes (`spare_nodes`). `leave`: it keeps running, and the "
            "promise may break; `requeue`: if a promise cannot be kept otherwise, such a job is "
            "requeued if it allows that, and its comment names the reason."
        ),
    ] = "leave"
    restart_exit_codes: Annotated[
        list[Annotated[int, Meta(ge=1, le=255)]],
        Meta(
            description="A promised job that fails with one of these exit codes is requeued if it "
            "can still run in full before its deadline. Slurm only; in HTCondor, jobs set "
            "max_retries."
        ),
    ] = []
    restarts: Annotated[
        int,
        Meta(
            ge=1,
            description="Maximum number of restarts (`Restarts` of `scontrol show job`, node "
            "failures included) after which a job is no longer requeued for its exit code.",
        ),
    ] = 1
    filters: Annotated[
        list[str] | None,
        Meta(
            description="Users who may request verdicts: those that slurmctld or the schedd runs "
            "as. Default: root, and slurm or condor."
        ),
    ] = None
    filter_group: Annotated[
        str | None,
        Meta(
            description="Group that may connect to `submit.sock`; the daemon must be a member. "
            "Empty: anyone may connect, and users not in `filters` are refused. Default: slurm or "
            "condor."
        ),
    ] = None
    admins: Annotated[
        list[str], Meta(description="Users besides root who may see all promises.")
    ] = []
    rest_user: Annotated[
        str,
        Meta(
            description="User that `rtsched rest` runs as. It may ask for the users whom it has "
            "identified, with their rights and limits. Empty: nobody may."
        ),
    ] = ""
    history_days: Annotated[
        float, Meta(gt=0, description="Days for which closed promises stay in the database.")
    ] = 90.0
    metrics_port: Annotated[
        int, Meta(ge=0, le=65535, description="Port on localhost for Prometheus metrics; 0: none.")
    ] = 0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="Log level.")
    ] = "info"

    def asking_users(self) -> list[str]:
        """Return the users who may ask for verdicts."""
        return [self.system, "root"] if self.filters is None else self.filters

    def asking_group(self) -> str:
        """Return the group that may connect to the submit filter's socket; empty: everybody."""
        return self.system if self.filter_group is None else self.filter_group


FORMER_DEFAULTS = {
    "late_starters": "requeue",
    "promises_per_user": 0,
    "promised_share_per_user": 0,
    "promised_share_per_account": 0,
}
"""Former defaults of settings of `[daemon]`; `rtsched check` names what changed."""


class LikelySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `[likely]` table: promises with odds."""

    share: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="Largest share of the machine that promises with odds may take until the "
            "latest of their deadlines, by size and requested time; 0: none are given.",
        ),
    ] = 0.5
    odds_least: Annotated[
        float, Meta(gt=0, lt=100, description="Lowest odds that users may ask for, per cent.")
    ] = 80.0
    without_estimate: Annotated[
        Literal["reject", "best-effort"],
        Meta(
            description="Whether a job that asks for odds is rejected, or accepted without a "
            "promise, while there is no estimate."
        ),
    ] = "reject"
    wait: Annotated[
        float,
        Meta(
            gt=0,
            description="Seconds after which a submission no longer waits for odds: its own, or "
            "those of choices after a rejection. It is 15 ms less than the submit filter waits, "
            "where that is shorter.",
        ),
    ] = 0.035
    warn_below: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="Users are notified, once, when the odds of a likely promise fall below "
            "this share of those stated; 0: never.",
        ),
    ] = 0.5


class Scope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[scope]]` table: another mode of plug-ins for some jobs. The last that fits wins."""

    mode: Annotated[Mode, Meta(description="Mode of the plug-ins for these jobs.")]
    plugin: Annotated[str | None, Meta(description="The plug-in; not set: all.")] = None
    partition: Annotated[
        str | None,
        Meta(description="Jobs of this partition (HTCondor: RtClass); not set: all."),
    ] = None
    qos: Annotated[str | None, Meta(description="Jobs of this QOS; not set: all.")] = None

    def covers(self, partition: str | None, qos: str | None, plugin: str) -> bool:
        """Return whether it says the mode of a plug-in for jobs of a partition and QOS.

        A part of a partition, `name/size`, is covered as the whole is.
        """
        whole = partition.partition(PART)[0] if partition else None
        return (
            self.plugin in {None, plugin}
            and self.partition in {None, whole}
            and self.qos in {None, qos}
        )


class LiveSite(Site, frozen=True, forbid_unknown_fields=True):
    """A site.toml, with what a running daemon needs."""

    daemon: Annotated[DaemonSettings, Meta(description="The daemon.")] = DaemonSettings()
    likely: Annotated[LikelySettings, Meta(description="Promises with odds.")] = LikelySettings()
    estimates: Annotated[EstimateSettings, Meta(description="Start estimates.")] = (
        EstimateSettings()
    )
    scope: Annotated[
        list[Scope], Meta(description="Different modes for some partitions or QOS.")
    ] = msgspec.field(default_factory=list)
    slurm: Annotated[SlurmSettings, Meta(description="How Slurm is polled and controlled.")] = (
        SlurmSettings()
    )
    condor: Annotated[
        CondorSettings, Meta(description="How HTCondor is polled and controlled.")
    ] = CondorSettings()

    @property
    def shares_nodes(self) -> bool:
        """Whether promised jobs take what they ask for of nodes that others share."""
        return (self.condor if self.daemon.system == "condor" else self.slurm).share_nodes


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
