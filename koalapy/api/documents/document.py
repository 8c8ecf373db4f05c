"""What all answers of the API are."""

from typing import Any

Document = dict[str, Any]
