"""Readers of accounting logs and of machine descriptions, and the writer of SWF."""

from rtsched.adapters.base import FORMATS, READERS, Reader, ReadOptions, read_logs
from rtsched.adapters.cluster_files import read_cluster

__all__ = ["FORMATS", "READERS", "ReadOptions", "Reader", "read_cluster", "read_logs"]
