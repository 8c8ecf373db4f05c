"""Shared by koalad and its clients: where files lie, which parts are installed, and who is at the end of a socket."""
