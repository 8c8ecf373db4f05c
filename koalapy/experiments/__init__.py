"""Experiments: published ones in the simulated world, replays of traces, and their common code."""
