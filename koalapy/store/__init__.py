"""The durable records of koalad: jobs, attempts, the outbox of commands, and every job's history."""
