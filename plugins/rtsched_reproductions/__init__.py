"""Reproductions of the published policies, for `rtsched reproduce NAME`."""
