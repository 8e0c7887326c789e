"""Slurm as a live system: reading queue and nodes, and carrying decisions out.

Tested with Slurm 24.11 and 26.05.
"""
