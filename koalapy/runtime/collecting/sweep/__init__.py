"""The files that a sweep's parameters left.

Templates name them; they are found by the results, some thousand at a time.
"""
