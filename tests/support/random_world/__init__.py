"""A small world for engine and driver, in which everything happens by dice and all that was promised is watched."""
