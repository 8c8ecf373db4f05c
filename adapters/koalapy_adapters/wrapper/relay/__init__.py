"""The wrapper's end of the relay: when and how it connects to its KCM, by TCP or by files."""
