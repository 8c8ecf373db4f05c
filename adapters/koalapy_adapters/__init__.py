"""What stands between koalad and the batch systems; all but `connections` is pushed to the clusters."""
