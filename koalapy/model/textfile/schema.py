"""The JSON Schema of a file, made from the models that read it: for editors, and for programs that write such files."""

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import WithDefaultSchema

from koalapy.model.textfile.fields import Section

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema_of(section: type[Section]) -> dict[str, Any]:
    """Return the schema. Rules that only koalapy can check, such as those between keys, are not in it."""
    return {"$schema": _DIALECT, **section.model_json_schema(schema_generator=_WithWrittenDefaults)}


class _WithWrittenDefaults(GenerateJsonSchema):
    """A generator that writes defaults as a file would have them: `1h`, not so many microseconds."""

    def default_schema(self, schema: WithDefaultSchema) -> JsonSchemaValue:
        found = super().default_schema(schema)
        inner: Any = schema["schema"]
        while "serialization" not in inner and "schema" in inner:
            inner = inner["schema"]
        write = inner.get("serialization", {})
        if found.get("default") is not None and write.get("type") == "function-plain":
            found["default"] = write["function"](schema["default"])
        return found
