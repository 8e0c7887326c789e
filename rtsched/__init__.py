"""Real-time and fairness plug-in scheduler for the batch systems that sites already run."""

__version__ = "0.1.0"
