"""The hooks, the chain of plug-ins that answers them, and one pass over the queue."""
