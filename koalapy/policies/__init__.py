"""Pure functions with registered names that the grid file chooses; third parties add theirs by entry points."""
