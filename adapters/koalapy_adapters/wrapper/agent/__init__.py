"""The node agent, parent of the program's processes on one node, and the wrapper's control of all its agents."""
