"""The layer of users, keys and accounting: what a cluster's administrator sets up once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.layers import Layer, boxes
from testbed.sandbox import Sandbox
from testbed.services import Services
from testbed.slurm import CGROUP_CONF, DATABASE_CONF, SlurmOptions

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

USERS = {"rtsched": 2000, "alice": 2001, "bob": 2002, "carol": 2003, "dave": 2004}
"""User ids; alice, bob and carol have shares 1, 2 and 3, dave has none of his own."""

ADD_USERS = """
set -eu
printf '127.0.0.1 localhost head\\n' >/etc/hosts
while [ $# -gt 0 ]; do
    groupadd --gid "$2" "$1"
    useradd --uid "$2" --gid "$2" --create-home --shell /bin/sh "$1"
    shift 2
done
"""

SLURM_USERS = """\
usermod --append --groups slurm rtsched
install -d -o slurm -g slurm -m 755 /var/spool/slurmctld /var/log/slurm /etc/slurm /var/lib/rtsched
install -d -m 755 /var/spool/slurmd /etc/rtsched /usr/lib/rtsched/slurm
chown rtsched:rtsched /var/lib/rtsched
install -d -o munge -g munge -m 700 /etc/munge /var/lib/munge /var/log/munge
dd if=/dev/urandom of=/etc/munge/munge.key bs=128 count=1 status=none
chown munge:munge /etc/munge/munge.key
chmod 400 /etc/munge/munge.key
chown slurm:slurm /etc/slurm/slurmdbd.conf
chmod 600 /etc/slurm/slurmdbd.conf
install -d -o mysql -g mysql -m 755 /var/lib/mysql
mariadb-install-db --no-defaults --user=mysql --datadir=/var/lib/mysql --innodb-log-file-size=16M \\
    --skip-test-db
"""

SCHEMA = """
create database slurm_acct_db;
create user slurm@localhost identified by 'testbed';
grant all on slurm_acct_db.* to slurm@localhost;
"""

# Slurm's own settings for its tables; durability is not what a testbed is for.
MARIADB = [
    "mariadbd",
    "--no-defaults",
    "--user=mysql",
    "--datadir=/var/lib/mysql",
    "--socket=/run/mysqld/mysqld.sock",
    "--skip-networking",
    "--innodb-buffer-pool-size=64M",
    "--innodb-log-file-size=16M",
    "--innodb-lock-wait-timeout=900",
    "--innodb-snapshot-isolation=OFF",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=OFF",
]

ASSOCIATIONS = """
add cluster testbed
add account science cluster=testbed fairshare=1
add account operators cluster=testbed fairshare=1
add user alice account=science fairshare=1
add user bob account=science fairshare=2
add user carol account=science fairshare=3
add user dave account=science fairshare=1
add user rtsched account=operators adminlevel=Operator
"""


def accounting(suite: str, below: Layer, cgroup_conf: str = CGROUP_CONF) -> Layer:
    """Return the layer with users, munge's key and an accounting database that knows the users."""
    script = ADD_USERS + SLURM_USERS
    recipe = "\n".join([str(USERS), script, SCHEMA, *MARIADB, ASSOCIATIONS, DATABASE_CONF])
    recipe += cgroup_conf

    def make(upper: Path, lower: list[Path]) -> Mapping[str, object]:
        with Sandbox(lower, boxes(), upper=upper) as box:
            etc = box.path("/etc/slurm")
            etc.mkdir(exist_ok=True)
            (etc / "slurmdbd.conf").write_text(DATABASE_CONF)
            (etc / "slurm.conf").write_text(SlurmOptions().slurm_conf())
            (etc / "cgroup.conf").write_text(cgroup_conf)
            users = [word for user in USERS.items() for word in map(str, user)]
            box.run(["sh", "-c", script, "add", *users], timeout=120)
            services = Services(box)
            services.prepare()
            start_munge(services)
            start_mariadb(services)
            box.run(["mariadb", "--no-defaults"], input=SCHEMA)
            start_slurmdbd(services)
            for line in ASSOCIATIONS.strip().splitlines():
                box.run(["sacctmgr", "--immediate", *line.split()])
            for name in ("slurmdbd", "mariadbd", "munged"):
                services.stop(name)
            box.run(["sh", "-c", "rm -rf /var/log/slurm/* /var/log/testbed /var/log/munge/*"])
        return {"users": USERS}

    return Layer(f"accounting-{suite}", recipe, make, below)


def start_munge(services: Services) -> None:
    """Start munged."""
    services.box.run(["install", "-d", "-o", "munge", "-g", "munge", "/run/munge"])
    socket = services.box.path("/run/munge/munge.socket.2")
    services.start("munged", ["munged", "-F"], user="munge", ready=socket.exists)


def start_mariadb(services: Services) -> None:
    """Start MariaDB."""
    box = services.box
    box.run(["install", "-d", "-o", "mysql", "-g", "mysql", "/run/mysqld"])
    ping = ["mariadb-admin", "--no-defaults", "ping"]
    services.start(
        "mariadbd", MARIADB, ready=lambda: box.run(ping, check=False).returncode == 0, timeout=60
    )


def start_slurmdbd(services: Services) -> None:
    """Start slurmdbd, which serves what MariaDB keeps."""
    box = services.box
    box.run(["install", "-d", "-o", "slurm", "-g", "slurm", "/run/slurm"])
    services.start(
        "slurmdbd",
        ["slurmdbd", "-D"],
        user="slurm",
        ready=lambda: box.listens(6819),
        timeout=60,
    )
