"""koalapy: run one job across all the clusters you have accounts on."""

__version__ = "0.1.0"
