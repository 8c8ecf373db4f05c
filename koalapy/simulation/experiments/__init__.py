"""What all experiments of the simulated world have in common, and the shelf on which they stand."""
