"""One simulated cluster: nodes, batch system and shared directory, with the real minds of KCM and wrapper on them."""
