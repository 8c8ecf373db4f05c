"""The co-allocator: claims, barriers and releases of jobs, the run list, retries, and stopping jobs."""
