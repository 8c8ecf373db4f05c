"""Flows (multistage co-allocation): jobs that wait for others, and the flows that they are part of."""
