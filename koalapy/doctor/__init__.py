"""`koala doctor` examines each cluster of a grid end to end, and reports for each failure what to change."""
