"""The board: one page about the plan, the promises and what else is possible, for browsers."""
