"""The answers of koalad's HTTP API, each described once, as a typed dictionary.

Views return these types, OpenAPI describes the API by them, and the Python client returns them.
A docstring below a field is its description. No module here imports anything of koalapy, or pydantic.
"""
