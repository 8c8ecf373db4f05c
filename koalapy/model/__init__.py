"""The types that all packages share: jobs, requests, clusters, their states, events and commands. No I/O."""
