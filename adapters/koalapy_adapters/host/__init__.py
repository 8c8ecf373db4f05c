"""What every part of the pushed file needs of the host that it runs on: processes, signals, pipes, its name."""
