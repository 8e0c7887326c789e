"""Settings of the daemon, and the site.toml of a site that is live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from rtsched.adapters.condor.settings import CondorSettings
from rtsched.adapters.live import PART
from rtsched.adapters.slurm.settings import SlurmSettings
from rtsched.core.config import Mode  # noqa: TC001 - read by msgspec
from rtsched.estimates.settings import EstimateSettings
from rtsched.replay.policies import SiteSettings

if TYPE_CHECKING:
    from rtsched.model.jobs import Jobs


class DaemonSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `[daemon]` table."""

    system: Literal["slurm", "condor"] = "slurm"
    """The batch system that runs here."""
    database: str = "/var/lib/rtsched/rtsched.db"
    """Database of promises (SQLite); its directory must be writable."""
    standby: bool = False
    """One daemon runs on each slurmctld host, with `database` in a shared directory; the one whose
    slurmctld has control is active, the others are on standby. Slurm only."""
    durable: Literal["full", "normal"] = "full"
    """`full`: a promise is on disk before the user sees it. `normal`: it survives a crash of the
    daemon at once, a power failure only after some seconds."""
    run: str = "/run/rtsched"
    """Directory of the sockets `submit.sock` and `query.sock`."""
    cycle: Annotated[float, Meta(gt=0)] = 5.0
    """Maximum seconds between polls of the batch system."""
    patience: Annotated[float, Meta(gt=0)] = 30.0
    """Timeout of requests to the batch system, seconds."""
    stale: Annotated[float, Meta(gt=0)] = 60.0
    """When the last poll is older than this many seconds, no job is evaluated; the submit filter
    then follows its setting `on_failure`."""
    lapse: Annotated[float, Meta(gt=0)] = 15.0
    """Seconds after which an admission expires if its job never appeared in the queue."""
    offer: Annotated[float, Meta(ge=0)] = 60.0
    """Seconds for which a counter-offer is held for its user; 0: it is not held."""
    offers_per_user: Annotated[int, Meta(ge=0)] = 1
    """Maximum number of counter-offers held per user; a new one replaces the oldest."""
    menu_ms: Annotated[float, Meta(ge=0)] = 10.0
    """Milliseconds for which alternatives to a rejected job are searched while its user waits; less
    if others wait. Odds are worked out meanwhile, and waited for as `wait` of `[likely]` says. 0:
    only a later deadline is offered."""
    unused_offers_per_hour: Annotated[int, Meta(ge=0)] = 10
    """After this many offers in an hour that the user did not accept, rejections still state a
    feasible deadline but hold nothing: held offers reserve nodes."""
    unused_promises_per_hour: Annotated[int, Meta(ge=0)] = 20
    """After this many admissions in an hour that no job followed, as with `sbatch --test-only`, the
    user gets no promise for a while; 0: no limit. A promise that is cancelled before its job starts
    counts by what was planned for it: the whole machine for an hour or more as five."""
    promises_per_user: Annotated[int, Meta(ge=0)] = 2000
    """Maximum number of promises per user; 0: no limit."""
    promised_share_per_user: Annotated[float, Meta(ge=0, le=1)] = 0.5
    """Largest share of a week of the machine that the promised jobs of a user may take, by size and
    requested time; 0: no limit."""
    promised_share_per_account: Annotated[float, Meta(ge=0, le=1)] = 1.0
    """The same of all promised jobs of an account; 0: no limit."""
    rejected: Literal["reject", "run"] = "reject"
    """What becomes of a job whose deadline cannot be promised, unless its user chooses
    (`rtsched:else=`, RtElse). `reject`: it is rejected, with a counter-offer. `run`: it is accepted
    without a promise, and runs as best effort, also after its deadline; it is promised its deadline
    as soon as there is room."""
    order: Literal["site", "deadline_in_place"] = "deadline_in_place"
    """How jobs wait that have a deadline and no guaranteed promise. `deadline_in_place`: they
    exchange their places in the queue, the earliest deadline first, last those that can no longer
    end in time; of others none comes later. `site`: as all other jobs."""
    late_starters: Literal["requeue", "leave"] = "leave"
    """A best-effort job may start on planned nodes just before they are reserved, or run on spare
    nodes (`spare_nodes`). `leave`: it keeps running, and the promise may break; `requeue`: if a
    promise cannot be kept otherwise, such a job is requeued if it allows that, and its comment
    names the reason."""
    restart_exit_codes: list[Annotated[int, Meta(ge=1, le=255)]] = []
    """A promised job that fails with one of these exit codes is requeued if it can still run in
    full before its deadline. Slurm only; in HTCondor, jobs set max_retries."""
    restarts: Annotated[int, Meta(ge=1)] = 1
    """Maximum number of restarts (`Restarts` of `scontrol show job`, node failures included) after
    which a job is no longer requeued for its exit code."""
    filters: list[str] | None = None
    """Users who may request verdicts: those that slurmctld or the schedd runs as. Default: root,
    and slurm or condor."""
    filter_group: str | None = None
    """Group that may connect to `submit.sock`; the daemon must be a member. Empty: anyone may
    connect, and users not in `filters` are refused. Default: slurm or condor."""
    admins: list[str] = []
    """Users besides root who may see all promises."""
    rest_user: str = ""
    """User that `rtsched rest` runs as. It may ask for the users whom it has identified, with their
    rights and limits. Empty: nobody may."""
    history_days: Annotated[float, Meta(gt=0)] = 90.0
    """Days for which closed promises stay in the database."""
    metrics_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """Port on localhost for Prometheus metrics; 0: none."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Log level."""

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

    share: Annotated[float, Meta(ge=0, le=1)] = 0.5
    """Largest share of the machine that promises with odds may take until the latest of their
    deadlines, by size and requested time; 0: none are given."""
    odds_least: Annotated[float, Meta(gt=0, lt=100)] = 80.0
    """Lowest odds that users may ask for, per cent."""
    without_estimate: Literal["reject", "best-effort"] = "reject"
    """Whether a job that asks for odds is rejected, or accepted without a promise, while there is
    no estimate."""
    wait: Annotated[float, Meta(gt=0)] = 0.035
    """Seconds after which a submission no longer waits for odds: its own, or those of choices after
    a rejection. It is 15 ms less than the submit filter waits, where that is shorter."""
    warn_below: Annotated[float, Meta(ge=0, le=1)] = 0.5
    """Users are notified, once, when the odds of a likely promise fall below this share of those
    stated; 0: never."""


class Scope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[scope]]` table: another mode of plug-ins for some jobs. The last that fits wins."""

    mode: Mode
    """Mode of the plug-ins for these jobs."""
    plugin: str | None = None
    """The plug-in; not set: all."""
    partition: str | None = None
    """Jobs of this partition (HTCondor: RtClass); not set: all."""
    qos: str | None = None
    """Jobs of this QOS; not set: all."""

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


class LiveSite(SiteSettings, frozen=True, forbid_unknown_fields=True):
    """A site.toml, with what a running daemon needs."""

    daemon: DaemonSettings = DaemonSettings()
    """The daemon."""
    likely: LikelySettings = LikelySettings()
    """Promises with odds."""
    estimates: EstimateSettings = EstimateSettings()
    """Start estimates."""
    scope: list[Scope] = msgspec.field(default_factory=list)
    """Different modes for some partitions or QOS."""
    slurm: SlurmSettings = SlurmSettings()
    """How Slurm is polled and controlled."""
    condor: CondorSettings = CondorSettings()
    """How HTCondor is polled and controlled."""

    @property
    def shares_nodes(self) -> bool:
        """Whether promised jobs take what they ask for of nodes that others share."""
        return (self.condor if self.daemon.system == "condor" else self.slurm).share_nodes


AT_START = (
    *("system", "database", "standby", "durable", "run", "patience"),
    *("filters", "filter_group", "rest_user", "metrics_port", "log_level"),
)
"""Settings of `[daemon]` that take effect when it starts; so do `[slurm]` and `[condor]`."""


def followed(changed: LiveSite, running: LiveSite) -> tuple[LiveSite, list[str]]:
    """Return changed settings as a daemon that started with others follows them.

    Those that take effect at a start stay as they are. Beside it are the names of such settings
    that differ.
    """
    own = {name: getattr(running.daemon, name) for name in AT_START}
    live = msgspec.structs.replace(
        changed,
        daemon=msgspec.structs.replace(changed.daemon, **own),
        slurm=running.slurm,
        condor=running.condor,
    )
    return live, [
        f"{table}.{name}"
        for table in ("daemon", "slurm", "condor")
        for name in msgspec.structs.asdict(getattr(changed, table))
        if getattr(getattr(changed, table), name) != getattr(getattr(live, table), name)
    ]


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
