"""Compares jobs with clusters by HTCondor's classad2, in a process of its own that may crash or be killed."""
