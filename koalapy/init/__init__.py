"""`koala init` examines the head nodes that a person names, and writes a grid file for them."""
