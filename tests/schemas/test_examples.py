"""The contract, proven by examples: adding a file under `schemas/v1/examples/RECORD/` is adding a test."""

from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from schemas.codec import decode, encode, tag_of
from schemas.topics import TOPICS

V1 = Path(str(files("schemas"))) / "v1"
EXAMPLES = sorted((V1 / "examples").glob("*/*.json"))
RECORDS = {tag_of(record): record for topic in TOPICS for record in topic.records}


def topics_of(record: str) -> list[str]:
    return [topic.name for topic in TOPICS if RECORDS[record] in topic.records]


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("path", EXAMPLES, ids=name_of)
def test_an_example_is_read_from_every_topic_of_its_record(path: Path) -> None:
    for topic in topics_of(path.parent.name):
        record = decode(topic, path.read_bytes())
        assert type(record) is RECORDS[path.parent.name]


@pytest.mark.parametrize("path", EXAMPLES, ids=name_of)
def test_an_example_fits_the_json_schema_of_its_record(path: Path) -> None:
    schema = orjson.loads((V1 / f"{path.parent.name}.schema.json").read_bytes())
    Draft202012Validator(schema).validate(orjson.loads(path.read_bytes()))


@pytest.mark.parametrize("path", EXAMPLES, ids=name_of)
def test_an_example_comes_out_as_it_went_in(path: Path) -> None:
    record = decode(topics_of(path.parent.name)[0], path.read_bytes())
    assert orjson.loads(encode(record)) == orjson.loads(path.read_bytes())


@pytest.mark.parametrize("record", RECORDS)
def test_every_record_has_a_full_and_a_minimal_example(record: str) -> None:
    names = {path.stem for path in EXAMPLES if path.parent.name == record}
    assert {"full", "minimal"} <= names


def test_the_examples_use_every_field_of_every_record_and_part() -> None:
    known: set[str] = set()
    used: set[str] = set()
    for record in RECORDS.values():
        known |= all_fields(record)
    for path in EXAMPLES:
        used |= fields_used(RECORDS[path.parent.name], orjson.loads(path.read_bytes()))
    assert known - used == set()


def test_no_example_is_of_an_unknown_record() -> None:
    assert {path.parent.name for path in EXAMPLES} == RECORDS.keys()


@pytest.mark.parametrize("path", EXAMPLES, ids=name_of)
def test_a_reader_ignores_a_field_that_a_newer_writer_adds(path: Path) -> None:
    topic = topics_of(path.parent.name)[0]
    newer = orjson.loads(path.read_bytes()) | {"a_field_of_next_year": {"x": [1]}}
    assert decode(topic, orjson.dumps(newer)) == decode(topic, path.read_bytes())


def struct_of(kind: msgspec.inspect.Type) -> msgspec.inspect.StructType | None:
    """The part inside a field's type: itself, in a list, as the value of a mapping, or optional."""
    match kind:
        case msgspec.inspect.StructType():
            return kind
        case msgspec.inspect.ListType():
            return struct_of(kind.item_type)
        case msgspec.inspect.DictType():
            return struct_of(kind.value_type)
        case msgspec.inspect.UnionType():
            return next((found for t in kind.types if (found := struct_of(t)) is not None), None)
    return None


def all_fields(record: type) -> set[str]:
    info = struct_of(msgspec.inspect.type_info(record))
    assert info is not None
    inner = [found.cls for f in info.fields if (found := struct_of(f.type)) is not None]
    return {f"{record.__name__}.{f.encode_name}" for f in info.fields}.union(*(all_fields(part) for part in inner))


def fields_used(record: type, shape: dict[str, Any]) -> set[str]:
    info = struct_of(msgspec.inspect.type_info(record))
    assert info is not None
    used = set()
    for f in info.fields:
        value = shape.get(f.encode_name)
        if value is None:
            continue
        used.add(f"{record.__name__}.{f.encode_name}")
        part = struct_of(f.type)
        if part is None:
            continue
        values = value if isinstance(value, list) else [value]
        if isinstance(f.type, msgspec.inspect.DictType):
            values = list(value.values())
        for item in values:
            used |= fields_used(part.cls, item)
    return used
