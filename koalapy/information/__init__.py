"""KIS, the information service: what is known of each cluster, how old it is, and what we have promised on it."""
