"""Queries of a head node that need no job: for `koala doctor` and `koala init`.

Each batch system has a module of pure functions here, like its dialect; one that has none is examined by its dialect
alone.
"""
