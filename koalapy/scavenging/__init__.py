"""Cycle scavenging (CCGrid 2009): the CS-Runners of sweeps, their parameters, and their Launchers on idle nodes."""
