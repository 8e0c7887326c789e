"""What Slurm is told: slurm.conf and slurmdbd.conf of a cluster of emulated nodes.

All nodes are on one machine: one slurmd each, told apart by name and port. Addresses never leave
the sandbox, whose network is its own, so every cluster uses the same ports.

References
----------
Manual pages slurm.conf(5) (multiple slurmd: `NodeHostname`, `Port`), slurmdbd.conf(5).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from testbed.backup import ADDRESS, NAME

if TYPE_CHECKING:
    from collections.abc import Mapping

PLUGINS = "/usr/lib/rtsched/slurm"
"""Directory of our plug-in inside the cluster; Slurm's own one follows it in PluginDir."""

STANDARD: dict[str, str] = {
    "ClusterName": "testbed",
    "SlurmctldHost": "head(127.0.0.1)",
    "SlurmUser": "slurm",
    "AuthType": "auth/munge",
    "StateSaveLocation": "/var/spool/slurmctld",
    "SlurmdSpoolDir": "/var/spool/slurmd/%n",
    "SlurmctldLogFile": "/var/log/slurm/slurmctld.log",
    "SlurmdLogFile": "/var/log/slurm/slurmd-%n.log",
    "SlurmctldPidFile": "/run/slurm/slurmctld.pid",
    "SlurmdPidFile": "/run/slurm/slurmd-%n.pid",
    "ProctrackType": "proctrack/linuxproc",
    "TaskPlugin": "task/none",
    "SchedulerType": "sched/backfill",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_Core_Memory",
    "PriorityType": "priority/multifactor",
    "PriorityWeightAge": "1000",
    "MaxJobCount": "200000",
    "MaxArraySize": "20001",
    "ReturnToService": "2",
    "SlurmdParameters": "config_overrides",
    "KillWait": "5",
    "MailProg": "/bin/true",
    "PluginDir": f"{PLUGINS}:/usr/lib/x86_64-linux-gnu/slurm-wlm",
}

ACCOUNTING: dict[str, str] = {
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "AccountingStorageHost": "127.0.0.1",
    "AccountingStoreFlags": "job_comment,job_extra,job_script",
    "JobAcctGatherType": "jobacct_gather/none",
    "PriorityWeightFairshare": "10000",
}

BACKUP: dict[str, str] = {"SlurmctldTimeout": "6", "CommunicationParameters": "NoCtldInAddrAny"}
"""With a backup controller: each listens at its own address, and it takes over soon."""

DATABASE_CONF = """\
AuthType=auth/munge
DbdHost=head
DbdAddr=127.0.0.1
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass=testbed
StorageLoc=slurm_acct_db
LogFile=/var/log/slurm/slurmdbd.log
PidFile=/run/slurm/slurmdbd.pid
"""

CGROUP_CONF = "CgroupPlugin=disabled\n"


@dataclass(frozen=True)
class SlurmOptions:
    """What may differ from one cluster to the next.

    Attributes
    ----------
    fast, slow, large : int
        How many nodes run, named fast1, ..., slow1, ... and large1, ..., with those features.
    hardware : mapping of str to str
        What nodes of a kind have, such as "CPUs=8 RealMemory=8000 Gres=gpu:a:2"; of others 4 CPUs
        and 1000 MB each.
    down : int
        How many more nodes, down1, ..., are only known and never answer.
    apart : tuple of str
        Those of them that run on hosts of their own, which have nothing of ours.
    settings : mapping of str to str
        Lines of slurm.conf in place of, or beside, the standard ones; an empty text removes one.
    lines : str
        Further lines of slurm.conf as they are, such as more partitions.
    partitions : str, optional
        The lines of partitions, in place of the one partition `all`.
    job_submit : tuple of str
        JobSubmitPlugins, such as ("rtsched", "lua"). With "rtsched", contrib/slurm is compiled
        and installed; with "lua", give the text of `job_submit_lua`.
    job_submit_lua : str
        The text of /etc/slurm/job_submit.lua.
    database : bool
        Run MariaDB and slurmdbd.
    admin_level : {"Operator", "Admin", "None"}
        What the user rtsched is to Slurm; without database, nothing.
    backup : bool
        Run a backup controller, on a second host (`testbed.backup`).
    """

    fast: int = 5
    slow: int = 25
    large: int = 0
    hardware: Mapping[str, str] = field(default_factory=dict)
    down: int = 0
    apart: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    lines: str = ""
    partitions: str | None = None
    job_submit: tuple[str, ...] = ()
    job_submit_lua: str = ""
    database: bool = True
    admin_level: str = "Operator"
    backup: bool = False

    @property
    def nodes(self) -> list[str]:
        """Names of the nodes that run."""
        kinds = (("fast", self.fast), ("slow", self.slow), ("large", self.large))
        return [f"{kind}{number + 1}" for kind, count in kinds for number in range(count)]

    def slurm_conf(self) -> str:
        """Return the text of slurm.conf."""
        settings = STANDARD | (ACCOUNTING if self.database else {})
        if self.job_submit:
            settings = settings | {"JobSubmitPlugins": ",".join(self.job_submit)}
        if self.backup:
            settings = settings | BACKUP
        settings = settings | dict(self.settings)
        lines = [f"{name}={value}" for name, value in settings.items() if value]
        lines += [f"SlurmctldHost={NAME}({ADDRESS})"] * self.backup
        lines += self._node_line("fast", self.fast, 18000, "Features=fast")
        lines += self._node_line("slow", self.slow, 18100, "Features=slow")
        lines += self._node_line("large", self.large, 18200, "Features=large")
        lines += self._node_line("down", self.down, 20000, "State=DOWN")
        lines.append(self.partitions or "PartitionName=all Nodes=ALL Default=YES State=UP")
        return "\n".join([*lines, self.lines, ""])

    def _node_line(self, kind: str, count: int, port: int, rest: str) -> list[str]:
        if count == 0:
            return []
        numbers, ports = ("1", str(port + 1)) if count == 1 else (f"[1-{count}]", "")
        ports = ports or f"[{port + 1}-{port + count}]"
        hardware = self.hardware.get(kind, "CPUs=4 RealMemory=1000")
        return [
            f"NodeName={kind}{numbers} NodeHostname=head NodeAddr=127.0.0.1 Port={ports} "
            f"{hardware} {rest}"
        ]
