"""The DCS experiment at the size of DAS-2: a batch of 40 co-allocated jobs, in the simulated world (DCS, section 4)."""
