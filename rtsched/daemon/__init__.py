"""The daemon: it answers the submit filter, keeps the promises, and steers the batch system."""
