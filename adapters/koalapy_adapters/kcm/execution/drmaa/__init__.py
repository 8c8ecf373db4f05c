"""DRMAA, whose C library runs in a helper process."""
