"""The code between koalad and the batch systems. All but `connections` and `contract` is pushed to the clusters."""
