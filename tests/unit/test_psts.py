"""The psts plug-in: node queues, arrivals, scans that pay, and what a job is told."""

from __future__ import annotations

from typing import ClassVar

from rtsched.testing import PluginConformance
from rtsched_plugins.psts import Psts


class TestSoft(PluginConformance):
    """With the defaults."""

    plugin = Psts


class TestStrict(PluginConformance):
    """With bound jobs and free scans."""

    plugin = Psts
    name = "psts"
    settings: ClassVar = {"binding": "strict", "comm_step": 0.0, "comp_step": 0.0, "dimension": 0}
