"""koalad in the simulated world: the real driver, engine, store and conversations, on a host that may fail."""
