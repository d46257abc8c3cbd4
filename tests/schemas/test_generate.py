"""The checked-in JSON Schemas are those of the records."""

from importlib.resources import files
from pathlib import Path

import orjson
import pytest
from jsonschema import Draft202012Validator, ValidationError  # type: ignore[import-untyped]

from schemas.codec import VERSION
from schemas.generate import documents

FOLDER = Path(str(files("schemas"))) / f"v{VERSION}"
DOCUMENTS = documents()


def test_there_is_one_checked_in_schema_per_record_and_no_other() -> None:
    assert {path.name for path in FOLDER.glob("*.schema.json")} == DOCUMENTS.keys()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_checked_in_schema_is_the_generated_one(name: str) -> None:
    assert (FOLDER / name).read_bytes() == DOCUMENTS[name], "run `python -m schemas.generate`"


def test_generating_twice_gives_the_same_bytes() -> None:
    assert documents() == DOCUMENTS


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_schema_is_valid_and_says_what_it_is(name: str) -> None:
    schema = orjson.loads(DOCUMENTS[name])
    Draft202012Validator.check_schema(schema)
    assert schema["title"]
    assert len(schema["description"]) > 20


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_schema_wants_the_record_and_the_version_that_the_codec_writes(name: str) -> None:
    record = name.removesuffix(".schema.json")
    example = orjson.loads((FOLDER / "examples" / record / "minimal.json").read_bytes())
    validator = Draft202012Validator(orjson.loads(DOCUMENTS[name]))
    for wrong in ({"v": VERSION + 1}, {"record": "something_else"}):
        with pytest.raises(ValidationError):
            validator.validate(example | wrong)
    for missing in ("v", "record"):
        with pytest.raises(ValidationError):
            validator.validate({key: value for key, value in example.items() if key != missing})
