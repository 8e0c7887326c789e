"""Kinds of names in logs."""

KEEPABLE = ("partition", "qos", "feature", "gres", "license", "node")
"""Kinds that a site may keep: names of its machine, not of people."""
