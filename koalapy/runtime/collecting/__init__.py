"""Files that a job left on its clusters, and their transfer to the place that the user named."""
