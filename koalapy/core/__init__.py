"""The engine's state, which every reaction reads and changes; it decides nothing."""
