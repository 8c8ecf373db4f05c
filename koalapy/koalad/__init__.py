"""The daemon of one grid: its assembly, start, stand-by, log and end."""
