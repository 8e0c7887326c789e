"""Notices to users about their promises, by a process of its own that asks the daemon."""
