"""One file a version, never changed once released."""
