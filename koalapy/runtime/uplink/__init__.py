"""koalad's end of the way to one cluster, on threads: makes the connection, holds it, talks, and connects again."""
