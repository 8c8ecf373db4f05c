"""Sweeps at full size in the simulated world: experiments of the cycle-scavenging paper (CCGrid 2009, section 6)."""
