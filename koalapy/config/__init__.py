"""The grid file: its schema and defaults, its errors, and what other rooms read of it. No I/O."""
