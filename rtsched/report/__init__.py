"""What a replay came to: one summary, tables for a terminal, files, and a page to look at."""
