"""koalad's side of a connection to a KCM, for koalad and the simulated world alike. Pure.

The room holds messages, clocks, sessions, and the commands that wait for an answer.
"""
