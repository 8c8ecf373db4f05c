"""koalad's link to one cluster, on threads: makes the connection, keeps it, and connects again."""
