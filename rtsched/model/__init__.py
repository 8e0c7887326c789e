"""Read-only structures of arrays: everything that policies see and say."""
