"""For authors of plug-ins: builders, hypothesis strategies, and the conformance test.

    from rtsched.testing import PluginConformance, make_cluster, make_jobs, make_snapshot

    class TestMyPlugin(PluginConformance):
        plugin = MyPlugin
        settings = {"limit": 4}

The builders need nothing but rtsched. The strategies (`rtsched.testing.strategies`) and the
conformance test need hypothesis; pytest collects the test, and `check_plugin` runs it without.
"""

from rtsched.testing.builders import make_cluster, make_events, make_jobs, make_snapshot
from rtsched.testing.conformance import PluginConformance, check_plugin

__all__ = [
    "PluginConformance",
    "check_plugin",
    "make_cluster",
    "make_events",
    "make_jobs",
    "make_snapshot",
]
