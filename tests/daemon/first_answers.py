"""Run a daemon to its first answers, and print what only these have loaded, as JSON.

In a process of its own: tests before would have loaded it.
"""

import asyncio
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from numba.core.dispatcher import Dispatcher
from running import Running

from rtsched.core.chain import Chain, Member
from rtsched.daemon.app import PluginChains
from rtsched.daemon.chains import Chains
from rtsched_plugins.mcdf import Mcdf
from rtsched_plugins.portfolio import Portfolio

PLANNERS = {
    "mcdf": lambda: Mcdf(Mcdf.Config(beside_plan=True)),
    "portfolio": lambda: Portfolio(Portfolio.Config(beside_plan=True)),
}
ASKED = (
    {},
    {"nodes": 2, "hours": 0.1},
    {"array": "0-9"},
    {"extra": "rtsched:sigma=100,cms=0.01,cps=2"},
    {"nodes": 4, "hours": 0.6},
)


class Serving(Running):
    """A daemon with a planner as live sites have it."""

    planner = sys.argv[1]

    def policy(self) -> PluginChains:
        """Return the plug-ins of a site with this planner alone."""
        plugin = PLANNERS[self.planner]
        chains = [Chains(Chain([Member("mcdf", plugin())], "mcdf"), ()) for _ in range(3)]
        return PluginChains(self.live, *chains)


def loaded() -> set[str]:
    """Return all modules, and the forms of compiled functions that are in memory."""
    modules = {name: module for name, module in sys.modules.items() if module is not None}
    own = [vars(module) for name, module in modules.items() if name.startswith("rtsched")]
    kernels = {
        each for names in own for each in list(names.values()) if isinstance(each, Dispatcher)
    }
    forms = {f"{kernel.py_func.__name__}{form}" for kernel in kernels for form in kernel.overloads}
    return {*modules, *forms}


async def main() -> None:
    """Serve until some submissions were answered."""
    with TemporaryDirectory() as folder:
        running, loop, ready = Serving(Path(folder)), asyncio.get_running_loop(), asyncio.Event()
        serving = asyncio.create_task(running.daemon.run([(running.server, None)], ready.set))
        await ready.wait()
        before = loaded()
        for words in ASKED:
            line = running.asked(**words)
            assert await loop.run_in_executor(None, line.recv, 65536)
            line.close()
        found = sorted(loaded() - before)
        running.daemon.stop()
        await serving
        running.close()
    print(json.dumps(found))


asyncio.run(main())
