"""`koala init`: looks at the head nodes that a person names, and writes a grid file of what is there."""
