"""Files out: what a job left on its clusters, and its way to where its user wants it."""
