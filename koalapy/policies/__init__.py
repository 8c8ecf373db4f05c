"""Pure functions with registered names, chosen in the grid file; third parties add theirs by entry points."""
