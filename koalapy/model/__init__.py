"""The vocabulary of all rooms: jobs, requests, clusters, their states, events and commands. No I/O."""
