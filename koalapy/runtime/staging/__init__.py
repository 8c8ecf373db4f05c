"""Input files: those that a job names, their versions, and their transfer to a cluster."""
