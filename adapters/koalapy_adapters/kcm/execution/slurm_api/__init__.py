"""Submission through the C library of Slurm, in a helper process."""
