"""The resource broker: requests against what is known of the clusters."""
