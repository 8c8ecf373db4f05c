"""The experiment `busy`: jobs on clusters that other users fill, which wait for idle processors or in batch queues."""
