"""Isolation: a borrower's program sees the system, what the lender shows, and the directory of its attempt; no more.

`view` states what it sees, `start_command` how a command is started in it, and `probe` which methods a node has.
"""
