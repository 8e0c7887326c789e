"""Arithmetic on plain arrays: no objects, no input or output, no clock."""
