"""Parameters of sweeps: how they are fed to Launchers, and how their results come back."""
