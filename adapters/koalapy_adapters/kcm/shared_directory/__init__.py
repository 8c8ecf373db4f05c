"""The files that a KCM keeps in the shared directory."""
