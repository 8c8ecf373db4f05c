"""The user's program: its working directory, environment and executable, and its processes on one node."""
