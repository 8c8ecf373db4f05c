"""What every room speaks of: jobs, requests, clusters, their states, events and commands. No I/O."""
