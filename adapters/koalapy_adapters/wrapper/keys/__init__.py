"""The rendezvous of a program's processes: a key space that all nodes share, and its server on each node."""
