"""The links to neighbouring sites: certificates and pins, TLS, the listener, and one link for each neighbour."""
