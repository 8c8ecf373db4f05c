"""What koalad must not forget: records of jobs and debts, the outbox of commands, and every job's history."""
