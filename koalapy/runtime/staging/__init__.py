"""Files in: what a job names, which version of it, and its way to a cluster."""
