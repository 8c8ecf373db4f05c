"""`koala doctor`: examines each cluster of a grid end to end, and says of each failure what to change."""
