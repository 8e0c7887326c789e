"""Accounts: who is charged, with which share."""

from __future__ import annotations

import numpy as np

from rtsched.model.table import Column, Table, Text


class Accounts(Table):
    """One row per account or user in it (Slurm: association); a forest by `parent`."""

    name = Text("Name of the account or user.")
    parent = Column(np.int32, -1, "Row of the account above; -1: a top level one.")
    shares = Column(np.float64, 1.0, "Shares against its siblings, > 0.")
    is_user = Column(np.bool_, False, "Whether it is a user's row (a leaf).")
    usage = Column(np.float64, 0.0, "Core-seconds charged so far, decayed as the site says.")

    def share(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return each row's fraction of the whole machine: the product of shares down the tree."""
        parent, shares = self.parent, self.shares
        siblings = np.zeros(len(self) + 1)
        np.add.at(siblings, parent, shares)
        fraction = shares / siblings[parent]
        depth_left = parent.copy()
        while (depth_left >= 0).any():
            above = depth_left >= 0
            fraction[above] *= (shares / siblings[parent])[depth_left[above]]
            depth_left[above] = parent[depth_left[above]]
        return fraction
