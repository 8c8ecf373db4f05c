"""koalad's HTTP API, described by OpenAPI, on a Unix socket that only its owner may connect to."""
