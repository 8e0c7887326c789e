"""The daemon's answers over HTTP, in a process of its own; users' commands on other hosts ask it.

`client` and what it imports need only the standard library and msgspec: users' commands start with
them. The server needs the extra `rest`.
"""
