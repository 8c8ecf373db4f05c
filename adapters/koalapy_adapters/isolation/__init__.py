"""Isolation: a borrower's program sees the system, what the lender shows, and the directory of its attempt; no more.

`view` states what it sees, `means` how a command is started in that view, and `probe` which means a node has.
"""
