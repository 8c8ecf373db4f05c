"""The grid file: its schema, defaults and errors, and the values that other packages read from it. No I/O."""

from koalapy.config.connect import Command, ConnectError, Connection, Docker, Leased, Local, Pilot, Ssh, parse_connect
from koalapy.config.convert import borrow_of, cluster_config, engine_settings
from koalapy.config.difference import AT_START, Changed, Difference, difference
from koalapy.config.load import json_schema, read_cluster, read_grid, with_clusters
from koalapy.config.pilots import inside, leased, lent_config, pilot_rules, with_isolation, with_temporary
from koalapy.config.scavenging import SWEEP_POLICIES
from koalapy.config.schema import Cluster, GridFile
from koalapy.config.site import Site

__all__ = [
    "AT_START",
    "SWEEP_POLICIES",
    "Changed",
    "Cluster",
    "Command",
    "ConnectError",
    "Connection",
    "Difference",
    "Docker",
    "GridFile",
    "Leased",
    "Local",
    "Pilot",
    "Site",
    "Ssh",
    "borrow_of",
    "cluster_config",
    "difference",
    "engine_settings",
    "inside",
    "json_schema",
    "leased",
    "lent_config",
    "parse_connect",
    "pilot_rules",
    "read_cluster",
    "read_grid",
    "with_clusters",
    "with_isolation",
    "with_temporary",
]
