"""The durable records of koalad: jobs, pending cancels, the outbox of commands, and every job's history."""
