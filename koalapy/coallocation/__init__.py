"""The co-allocator: claim, barrier, release; the run list; retries; what becomes of a job that stops."""
