"""Simulated batch systems: they take the same actions as a live one, and run a log's jobs."""
