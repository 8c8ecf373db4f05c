"""The information service (KIS): the state of each cluster, its age, and the processors that are committed there."""
