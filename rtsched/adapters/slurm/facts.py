"""Facts of a Slurm for the translator: margins, limits, node sizes, who is charged.

Sources: manual pages slurm.conf, scontrol.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rtsched.adapters.slurm.rows import MEGABYTE, number
from rtsched.logs.slurm_cluster import billing_by, pairs_of
from rtsched.logs.slurm_limits import qos_named
from rtsched.model.limits import CALC_PERIOD, HALF_LIFE
from rtsched.model.resources import CPU, GRES, MEMORY
from rtsched.model.units import slurm_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rtsched.adapters.slurm.layout import PartitionParts
    from rtsched.model.limits import BillingWeights, LimitRules

_FEDERATION = re.compile(r"(?m)^Federation:\s*(\S+)")
_SETTING = re.compile(r"(?m)^(\w+)\s*=\s?(.*?)\s*$")
_NUMBER = re.compile(r"\d{1,9}")


@dataclass(frozen=True)
class Partition:
    """A partition, or a part of it: the nodes that a job asks for.

    Attributes
    ----------
    name : str
        Its name.
    default_s, longest_s : float
        Seconds of a job that gives no limit, and at most; inf: no end.
    up : bool
        Whether it starts jobs.
    nodes : int
        How many nodes it has.
    cores, memory : int
        The least cores and bytes that one of its nodes has.
    cpu_memory : int
        The least bytes per core that one of its nodes has.
    min_nodes, max_nodes : int, float
        Fewest and most nodes of a job; inf: no limit.
    threads : int
        The most processors that a core of one of its nodes has; a job gets whole cores.
    node_memory, core_memory : int
        Bytes that a job without a wish gets on each node, or per processor there; 0: not set.
    exclusive : bool
        Whether all its jobs have whole nodes.
    hardware : tuple of (mapping of str to int, int)
        What its nodes have of each resource, where jobs share them, and how many have just that.
    above : str
        A partition that has some of its nodes too, and whose jobs Slurm starts before; empty: none.
    access : mapping of str to str
        What keeps some users, accounts or QOS from it, as in `access.access_of`.
    capped : str
        What keeps its jobs from some processors of a node, such as `MaxCPUsPerNode=4`; empty:
        nothing.
    job_memory : int
        Bytes that a job may have of a node at most; 0: no limit.
    most_core_memory : int
        Bytes per processor from which on Slurm gives a job more processors; 0: not set.
    gpu_cores, gpu_memory : int
        Processors and bytes for each GPU of a job without a wish; 0: not set.
    oversubscribes : bool
        Whether jobs that ask for it share cores there, where jobs share nodes.
    """

    name: str
    default_s: float = math.inf
    longest_s: float = math.inf
    up: bool = True
    nodes: int = 0
    cores: int = 1
    memory: int = -1
    cpu_memory: int = -1
    min_nodes: int = 0
    max_nodes: float = math.inf
    threads: int = 1
    node_memory: int = 0
    core_memory: int = 0
    exclusive: bool = False
    hardware: tuple[tuple[Mapping[str, int], int], ...] = ()
    above: str = ""
    access: Mapping[str, str] = field(default_factory=dict)
    capped: str = ""
    job_memory: int = 0
    most_core_memory: int = 0
    gpu_cores: int = 0
    gpu_memory: int = 0
    oversubscribes: bool = False

    @property
    def restricted(self) -> bool:
        """Whether not all users, accounts and QOS may use it."""
        return not self.access.keys() <= {"DisableRootJobs"}

    def most(self, resource: str) -> int:
        """Return the most of a resource that a job may have of a node, where jobs share them."""
        most = max((node.get(resource, 0) for node, _ in self.hardware), default=0)
        return min(most, self.job_memory or most) if resource == MEMORY else most


@dataclass(frozen=True)
class Sharing:
    """How jobs share nodes.

    Attributes
    ----------
    resources : tuple of str
        What Slurm gives them of nodes; empty: they have whole nodes.
    licenses : mapping of str to int, optional
        How many there are of each licence, by names such as `license/matlab`; None: Slurm's
        backfill scheduler does not plan with them.
    """

    resources: tuple[str, ...] = ()
    licenses: Mapping[str, int] | None = None


@dataclass(frozen=True)
class SlurmFacts:
    """What a poll found out about the configuration; times in seconds.

    Attributes
    ----------
    version : str
        Slurm's version, such as `26.05.5`.
    cluster : str
        ClusterName.
    federation : str
        The federation that the cluster is in; empty: none.
    margin : float
        By how much a job outlives its time limit at the latest, counted from its planned start:
        start delay, OverTimeLimit, KillWait, epilog and completing nodes.
    completing : float
        How long nodes stay busy after a job's end.
    partitions : dict of str to Partition
        By name.
    default : str
        The partition of a job that names none.
    longest : float
        The longest time limit of any partition; inf: no end.
    associations : dict of (account, user) to int
        Row of `Accounts`.
    home : dict of str to str
        Each user's default account.
    above : dict of str to str
        The account above each.
    users : dict of int to str
        Names by uid, of those seen.
    enforced : bool
        Whether Slurm refuses jobs without an association (AccountingStorageEnforce).
    requeue_delay : float
        How long Slurm puts off a job that it queues again.
    backfill : float
        How long after a heterogeneous job could start the backfill scheduler starts it, which alone
        does; inf: there is none.
    sharing : Sharing
        How promised jobs share nodes.
    given : Sharing
        What Slurm gives jobs of nodes, though promised ones may have whole nodes.
    array_size : int
        MaxArraySize: task ids are below it; 0: not known.
    basic : bool
        PriorityType is priority/basic, which knows no site factors: jobs are ordered by Nice.
    site_factors : bool
        A plug-in of the site's sets site factors (PrioritySiteFactorPlugin).
    core_spec : bool
        Jobs may set processors aside for the system (`--core-spec`); else Slurm ignores that.
    part_limits : str
        EnforcePartLimits: `NO`, `ANY` or `ALL`.
    switches : bool
        Slurm knows which nodes are on which switch, and chooses nodes by that.
    limits : LimitRules or None
        The limits of accounts and QOS that Slurm keeps to; None: it keeps to none.
    billing : BillingWeights or None
        What jobs are billed for; None: not known.
    parts : PartitionParts or None
        What those nodes of partitions have that jobs ask for; None: nobody knows.
    features : frozenset of str or None
        What any node has, or can have after a reboot; None: nobody knows.
    unchecked : frozenset of str
        Options in which Slurm accepts features that no node has: `constraint` and `prefer`.
    """

    version: str = ""
    cluster: str = ""
    federation: str = ""
    margin: float = 0.0
    completing: float = 0.0
    partitions: dict[str, Partition] = field(default_factory=dict)
    default: str = ""
    longest: float = math.inf
    associations: dict[tuple[str, str], int] = field(default_factory=dict)
    home: dict[str, str] = field(default_factory=dict)
    above: dict[str, str] = field(default_factory=dict)
    users: dict[int, str] = field(default_factory=dict)
    sharing: Sharing = Sharing()
    given: Sharing = Sharing()
    basic: bool = False
    site_factors: bool = False
    core_spec: bool = True
    part_limits: str = "NO"
    switches: bool = False
    enforced: bool = False
    requeue_delay: float = 0.0
    backfill: float = 30.0
    array_size: int = 0
    limits: LimitRules | None = field(default=None, compare=False)
    billing: BillingWeights | None = None
    parts: PartitionParts | None = field(default=None, compare=False)
    features: frozenset[str] | None = None
    unchecked: frozenset[str] = frozenset()

    @property
    def wide_margin(self) -> float:
        """The margin of a job whose limit is rounded up to whole minutes."""
        return self.margin + 60.0


def facts_of(config: dict[str, str], start_delay: float, completing: float) -> SlurmFacts:
    """Return what the configuration says, by `config_of`.

    `start_delay` and `completing`: by the site's settings, seconds.
    """
    plugin = config.get("TopologyPlugin", "").rpartition("/")[2]
    return SlurmFacts(
        version=config.get("SLURM_VERSION", ""),
        cluster=config.get("ClusterName", ""),
        margin=margin_of(config, start_delay, completing),
        completing=max(completing, seconds(config, "CompleteWait")),
        basic=config.get("PriorityType", "").endswith("basic"),
        site_factors=config.get("PrioritySiteFactorPlugin", "(null)") not in {"(null)", ""},
        part_limits=config.get("EnforcePartLimits", "NO").upper(),
        core_spec=config.get("AllowSpecResourcesUsage", "").lower() not in {"no", "0"},
        switches=plugin not in {"", "(null)", "none", "flat", "default"},
        enforced=_enforces(config, "associations", "limits", "safe", "qos", "wckeys", "all"),
        requeue_delay=requeue_delay_of(config),
        array_size=number(config.get("MaxArraySize", "")),
        backfill=backfill_interval_of(config),
        unchecked=unchecked_features(config),
    )


def federation_in(shown: str) -> str:
    """Return the federation that `scontrol show federation` shows; empty: none."""
    match = _FEDERATION.search(shown)
    return match[1] if match else ""


def config_of(text: str) -> dict[str, str]:
    """Return the settings that `scontrol show config` lists, by name."""
    return dict(_SETTING.findall(text))


def seconds(config: dict[str, str], name: str) -> float:
    """Return a setting such as `30 sec` or `5 min` in seconds; 0 where it is missing."""
    text = config.get(name, "")
    if text.upper().startswith("UNLIMITED"):
        return math.inf
    match = _NUMBER.match(text)
    return float(match[0]) * (60.0 if "min" in text else 1.0) if match else 0.0


def margin_of(config: dict[str, str], start_delay: float, completing: float) -> float:
    """Return by how much a job can outlive its limit, seconds (see `SlurmFacts.margin`).

    An OverTimeLimit without end cannot be planned with; it counts as none.
    """
    over = seconds(config, "OverTimeLimit")
    over = over if math.isfinite(over) else 0.0
    wait = max(completing, seconds(config, "CompleteWait"))
    return start_delay + over + seconds(config, "KillWait") + wait


def keeps_limits(config: dict[str, str]) -> bool:
    """Return whether Slurm keeps to limits of accounts and QOS (`limits`, `safe` or `all`)."""
    return _enforces(config, "limits", "safe", "all")


def used_time_rules(config: dict[str, str]) -> tuple[bool, float]:
    """Return how used time counts, `safe` and `half_life` as in `SiteLimits`."""
    half_life = slurm_duration(config.get("PriorityDecayHalfLife", ""))
    decays = HALF_LIFE if math.isnan(half_life) else half_life or math.inf
    return _enforces(config, "safe", "all"), decays


def _enforces(config: dict[str, str], *words: str) -> bool:
    """Return whether AccountingStorageEnforce has one of these words."""
    return not {*words}.isdisjoint(config.get("AccountingStorageEnforce", "").lower().split(","))


def calc_period_of(config: dict[str, str]) -> float:
    """Return how often Slurm counts what running jobs used (PriorityCalcPeriod), seconds."""
    period = slurm_duration(config.get("PriorityCalcPeriod", ""))
    return period if math.isfinite(period) else CALC_PERIOD


def requeue_delay_of(config: dict[str, str]) -> float:
    """Return for how many seconds Slurm puts off a job that it queues again.

    `requeue_delay` in SchedulerParameters, else until the job's credentials have expired
    (`cred_expire` in AuthInfo, 120 s if it is not set); and a second.
    """
    for setting, word in (("SchedulerParameters", "requeue_delay"), ("AuthInfo", "cred_expire")):
        found = re.search(rf"(?:^|,){word}=(\d{{1,9}})", config.get(setting, ""))
        if found is not None:
            return float(found[1]) + 1.0
    return 121.0


def sharing_of(config: dict[str, str]) -> tuple[Sharing, str]:
    """Return how jobs share nodes, and why they do not; empty: they do.

    Generic resources are those whose amounts Slurm shows, by AccountingStorageTRES.
    """
    for setting, value, least in (
        ("SelectType", "select/cons_tres", "cons_tres"),
        ("PriorityType", "priority/multifactor", "multifactor"),
        ("SchedulerType", "sched/backfill", "backfill"),
    ):
        if not config.get(setting, least).endswith(least):
            return Sharing(), (
                f"share_nodes needs {setting}={value}: promised jobs have whole nodes; change "
                "slurm.conf, or set share_nodes = false"
            )
    consumed = config.get("SelectTypeParameters", "").upper()
    memory = (MEMORY,) if "MEMORY" in consumed else ()
    tracked = config.get("AccountingStorageTRES", "").lower().split(",")
    resources = (CPU, *memory, *(name for name in tracked if name.startswith(GRES)))
    return Sharing(resources), ""


def backfill_interval_of(config: Mapping[str, str]) -> float:
    """Return the seconds between two runs of Slurm's backfill scheduler; inf: it does not run.

    `bf_interval` in SchedulerParameters, 30 if it is not set.
    """
    if not config.get("SchedulerType", "backfill").endswith("backfill"):
        return math.inf
    found = re.search(r"(?:^|,)bf_interval=(-?\d{1,9})", config.get("SchedulerParameters", ""))
    seconds = float(found[1]) if found is not None else 30.0
    return seconds if seconds >= 0.0 else math.inf


def unchecked_features(config: Mapping[str, str]) -> frozenset[str]:
    """Return the options of sbatch in which Slurm accepts features that no node has."""
    parameters = config.get("SchedulerParameters", "").lower()
    options = ("constraint", "prefer")
    return frozenset(name for name in options if f"ignore_{name}_validation" in parameters)


def plans_licenses(config: Mapping[str, str]) -> bool:
    """Return whether Slurm's backfill scheduler plans with licences (manual page slurm.conf)."""
    return "bf_licenses" in config.get("SchedulerParameters", "").lower().split(",")


def default_memory(settings: Mapping[str, str]) -> tuple[int, int]:
    """Return DefMemPerNode and DefMemPerCPU, bytes; 0: not set."""
    known = {name.lower(): value for name, value in settings.items()}
    node, core = known.get("defmempernode", ""), known.get("defmempercpu", "")
    return number(node) * MEGABYTE, number(core) * MEGABYTE


def partitions_of(
    text: str, config: Mapping[str, str] | None = None
) -> tuple[dict[str, dict[str, str]], str]:
    """Return what `scontrol show partition -o` says by partition, and the default one's name.

    A limit or a default of memory that a partition does not set is that of the whole cluster, by
    `config_of`; a partition has either one per node or one per processor.
    """
    found: dict[str, dict[str, str]] = {}
    default = ""
    for line in text.splitlines():
        pairs = pairs_of(line)
        name = pairs.get("partitionname", "")
        if name:
            for kind in ("Max", "Def"):
                names = f"{kind}MemPerNode", f"{kind}MemPerCPU"
                if not any(number(pairs.get(each.lower(), "")) for each in names):
                    pairs |= {each.lower(): (config or {}).get(each, "") for each in names}
            found[name] = pairs
            if pairs.get("default", "").upper() == "YES":
                default = name
    return found, default


def qos_of_partitions(partition_pairs: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the QOS of the partitions that have one, by what `partitions_of` returns."""
    named = {name: qos_named(pairs.get("qos", "")) for name, pairs in partition_pairs.items()}
    return {name: qos for name, qos in named.items() if qos}


def billing_of(flags: str, partition_pairs: Mapping[str, Mapping[str, str]]) -> BillingWeights:
    """Return what jobs are billed for, by PriorityFlags and what `partitions_of` returns.

    Raises
    ------
    InputError
        If weights are not what slurm.conf takes.
    """
    settings = {
        name: (0, pairs.get("tresbillingweights", "")) for name, pairs in partition_pairs.items()
    }
    return billing_by("scontrol show partition", settings, flags)


def limit_of(text: str, otherwise: float) -> float:
    """Return the seconds of a partition's limit; `otherwise` where there is none."""
    limit = slurm_duration(text)
    return otherwise if math.isnan(limit) else limit
