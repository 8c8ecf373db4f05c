"""The daemon of one grid: how it is put together, starts, stands by, logs and ends."""
