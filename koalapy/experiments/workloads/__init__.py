"""Streams of jobs for experiments: logs of real systems, and models of them."""
