"""One simulated cluster: nodes, batch system and shared directory, with real machines of KCM and wrapper."""
