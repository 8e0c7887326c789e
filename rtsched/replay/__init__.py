"""Replay a log against simulated batch systems, and measure what comes of it."""
