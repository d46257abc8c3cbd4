"""Writes the JSON Schemas of all records to `schemas/v1`. Run `python -m schemas.generate` after changing a record."""

from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson

from schemas.codec import VERSION, tag_of
from schemas.topics import TOPICS, Topic

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
FOLDER: Final = f"v{VERSION}"


def documents() -> dict[str, bytes]:
    """The schema files: name to content. The same records always give the same bytes."""
    carriers: dict[type, list[Topic]] = {}
    for topic in TOPICS:
        for record in topic.records:
            carriers.setdefault(record, []).append(topic)
    return {f"{tag_of(record)}.schema.json": _text(schema_of(record, on)) for record, on in carriers.items()}


def schema_of(record: type, topics: list[Topic]) -> dict[str, Any]:
    """The JSON Schema of one record as it is on the wire, with `record` and `v`."""
    _, parts = msgspec.json.schema_components([record], ref_template="#/$defs/{name}")
    shape: dict[str, Any] = parts.pop(record.__name__)
    where = "; ".join(f"`{topic.name}` by {topic.key}" for topic in topics)
    return {
        "$schema": DIALECT,
        "title": record.__name__,
        "description": f"{shape.get('description', '')}\n\nOn topic, by key: {where}.".lstrip(),
        "type": "object",
        "properties": {"v": {"const": VERSION}, **shape["properties"]},
        "required": ["v", *shape["required"]],
        **({"$defs": dict(sorted(parts.items()))} if parts else {}),
    }


def _text(schema: dict[str, Any]) -> bytes:
    return orjson.dumps(schema, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def main() -> None:
    """Write all files, remove those of records that are gone."""
    folder = Path(str(files("schemas"))) / FOLDER
    folder.mkdir(exist_ok=True)
    wanted = documents()
    for gone in {path.name for path in folder.glob("*.schema.json")} - wanted.keys():
        (folder / gone).unlink()
    for name, content in wanted.items():
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    main()
