"""Records of attempts and sweeps, the actions that reactions order, and the timers that wake them."""
