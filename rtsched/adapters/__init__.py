"""Live batch systems: what both share, and a package for each."""
