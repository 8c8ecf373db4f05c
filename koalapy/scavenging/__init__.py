"""Cycle scavenging (CCGrid 2009): sweeps' CS-Runners, their parameters, and their Launchers on idle nodes."""
