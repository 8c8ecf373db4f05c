"""What a head node can say before anything is run on its cluster: for `koala doctor`, and for `koala init`.

Each batch system has a module of pure functions here, like its dialect; one that has none is examined by its dialect
alone.
"""
