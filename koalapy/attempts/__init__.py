"""One attempt: what its wrapper and its batch system report, missing attempts, cancels. It knows no owner."""
