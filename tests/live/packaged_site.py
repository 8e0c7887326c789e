"""A Slurm of Debian 13 for our packages: head, login and compute hosts apart, nothing of ours."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from guide import Block, follow, stand_in
from testbed import Cluster, Sandbox, SlurmOptions
from testbed.accounting import accounting
from testbed.box import COMPILED
from testbed.distribution import debs
from testbed.images import compiled, packages
from testbed.layers import Layer

SUITE = "trixie"
NODES = ("fast1", "fast2", "slow1", "slow2", "slow3", "slow4")
MORE = ("systemd", "procps", "curl", "openssl", "exim4-daemon-light")
"""What the packages depend on, what the guide calls, and Debian's mail system."""

# As a host is before the guide: without a user or a file of ours.
FORGET = """
userdel rtsched
rm -rf /var/lib/rtsched /etc/rtsched /usr/lib/rtsched /run/rtsched
"""
NO_ACCOUNT = "sacctmgr -i delete user rtsched && sacctmgr -i delete account operators"

DROP_IN = "/etc/systemd/system/rtsched.service.d/kernels.conf"
KERNELS = f"[Service]\nEnvironment=NUMBA_CACHE_DIR={COMPILED}\n"
"""Where kernels are that an earlier run has compiled."""


class Site(Cluster):
    """A Slurm of 24.11 that knows nothing of rtsched, each compute node on a host of its own.

    The packages are where an admin has copied them to.

    Parameters
    ----------
    apart : sequence of str
        The compute nodes that have hosts of their own.
    more : sequence of str
        Further packages of Debian on all hosts.
    """

    def __init__(self, apart: Sequence[str] = NODES, more: Sequence[str] = ()) -> None:
        settings = {"PluginDir": "", "AccountingStoreFlags": "job_comment"}
        self.more = [*MORE, *more]
        slurm = SlurmOptions(
            fast=2, slow=4, admin_level="None", apart=tuple(apart), settings=settings
        )
        super().__init__(SUITE, slurm, software=False)
        self._packages = debs(SUITE)

    def _bare_layer(self) -> Layer:
        return accounting(SUITE, packages(SUITE, "site", self.more, packages(SUITE)))

    def _binds(self) -> dict[Path, str]:
        return {compiled(): COMPILED}

    def _start_all(self) -> None:
        super()._start_all()
        self.add_host("login")
        self.run(["sh", "-euc", NO_ACCOUNT])
        for host in (self.box, *self.hosts.values()):
            host.run(["sh", "-uc", FORGET])
        self.write({DROP_IN: KERNELS})
        # Who made them has another uid with each set of packages.
        self.run(["chmod", "--recursive", "--silent", "a+rwX", COMPILED], check=False)
        stand_in(self)

    def copy_packages(self, directory: str, host: Sandbox | None = None, *wanted: str) -> None:
        """Copy packages, by default all, to a host, by default the head."""
        source, names = self._packages
        target = (host or self.box).path(directory)
        target.mkdir(parents=True)
        for name in wanted or names:
            shutil.copy(source / names[name], target)

    def follow(self, guide: list[Block]) -> dict[str, str]:
        """Follow a guide here, with slurm.conf copied to all hosts before it is read again."""
        reply = dict[str, str]()
        for block in guide:
            before, again, after = block.text.partition("scontrol reconfigure\n")
            if again:
                assert not after
                follow(self, [block._replace(text=before)])
                self.copy_conf()
                block = block._replace(text=again)
            for section, text in follow(self, [block])[0].items():
                reply[section] = reply.get(section, "") + text
        return reply
