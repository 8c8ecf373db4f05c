"""Messages between a KCM and its wrappers, by TCP or by files."""
