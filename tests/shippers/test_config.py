from pathlib import Path

import pytest

from schemas.records import ClockClaim
from shippers.config import Config, ConfigError, StartAt, load, parse_start_at

ROOT = Path(__file__).parents[2]
STATIC = "[clock.static]\nraw_ns = 1\nmono_ns = 2\nboottime_ns = 3\nwall_ns = 4\n"


def loaded(tmp_path: Path, text: str, environment: dict[str, str] | None = None) -> Config:
    path = tmp_path / "node.toml"
    path.write_text(text, encoding="utf-8")
    return load(path, environment or {})


def test_an_empty_file_ships_the_kernel_log_of_this_host(tmp_path: Path) -> None:
    config = loaded(tmp_path, "")

    assert [(each.type, each.path) for each in config.source] == [("kmsg", "/dev/kmsg")]
    assert config.reporter
    assert (config.run, config.run_id) == ("live", "live")


def test_the_example_file_is_valid_and_names_every_table() -> None:
    text = (ROOT / "deploy" / "node.example.toml").read_text(encoding="utf-8")
    config = load(ROOT / "deploy" / "node.example.toml", {})

    assert config.source
    for name in (*Config.__struct_fields__, "claim", "static"):
        assert name in text, name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clutser = 'x'", r"node.toml: unknown key clutser; did you mean cluster\?"),
        ("[kafka]\nbootstrp = 'x'", r"node.toml: unknown key kafka.bootstrp; did you mean bootstrap\?"),
        ("[[source]]\npaht = 'x'", r"node.toml: unknown key source.paht; did you mean path\?"),
        ("[clock.claim]\noffset = 1", "unknown key clock.claim.offset"),
        ("[batch]\nlines = 'many'", r"Expected `int`, got `str` - at `\$.batch.lines`"),
        ("[batch]\nlinger_ms = 0", "batch.linger_ms is 0; it must be 1 to 1000"),
        ("start_at = 'yesterday'", 'start_at is "yesterday"; write "end", "beginning" or an age'),
        ("[[source]]\nname = 'a'", 'source "a" has no path'),
        ("[[source]]\npath = '/a'\n[[source]]\npath = '/a'", 'two sources are called "/a"'),
        ("[clock.claim]\noffset_ns = 400000000000000000\nbound_ns = 1\nby = 'me'", "clock.claim.offset_ns is 4"),
        ("[clock.claim]\noffset_ns = 0\nbound_ns = -1\nby = 'me'", "clock.claim.bound_ns is -1; it must be 0 to"),
        (STATIC.replace("mono_ns = 2", "mono_ns = 9223372036854775808"), "clock.static.mono_ns is 9223372036854775808"),
        ("run = 'replay'", r"needs \[clock.static\]"),
        ("x = ", "not TOML"),
    ],
)
def test_a_mistake_is_named_with_file_and_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        loaded(tmp_path, text)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rank", "-1"), ("rank", "x"), ("rank", "²"), ("rank", ""), ("rank", "9" * 30), ("job.attempt", "1.5"),
        ("time.year", "26"), ("time.zone", "Mars"), ("time.zone", "+14:30"), ("time.zone", "+02:60"),
        ("time.zone", "+0:200"), ("time.zone", "02:00"), ("time.zone", ""), ("kind", "kernel"), ("kind", "disk"),
    ],
)  # fmt: skip
def test_an_attribute_that_cannot_be_is_named_with_its_source(tmp_path: Path, key: str, value: str) -> None:
    text = f"[[source]]\nname = 'train'\npath = '/a'\nattributes = {{ \"{key}\" = \"{value}\" }}"
    with pytest.raises(ConfigError, match=rf'node.toml: attributes of source "train": {key} is "'):
        loaded(tmp_path, text)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rank", "0"), ("job.attempt", "12"), ("time.year", "2026"), ("time.zone", "+02:00"), ("time.zone", "-0530"),
        ("time.zone", "Z"), ("time.zone", "UTC"), ("time.zone", "+14:00"), ("kind", "application"), ("my.own", "x"),
    ],
)  # fmt: skip
def test_an_attribute_that_fits_is_taken(tmp_path: Path, key: str, value: str) -> None:
    text = f'[[source]]\npath = \'/a\'\nattributes = {{ "{key}" = "{value}" }}'

    assert loaded(tmp_path, text).source[0].attributes == {key: value}


def test_an_environment_that_is_not_utf_8_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="environment ROOTRANK_SHIPPER__CLUSTER: not UTF-8"):
        loaded(tmp_path, "", {"ROOTRANK_SHIPPER__CLUSTER": "c\udcff"})


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        "cluster = 'a'\n[kafka]\nbootstrap = 'x:1'",
        {
            "ROOTRANK_SHIPPER__CLUSTER": "12",
            "ROOTRANK_SHIPPER__KAFKA__BOOTSTRAP": "y:2,z:3",
            "ROOTRANK_SHIPPER__BATCH__LINGER_MS": "20",
            "ROOTRANK_SHIPPER__CLOCK__BEACON": "false",
        },
    )

    assert (config.cluster, config.kafka.bootstrap) == ("12", "y:2,z:3")
    assert (config.batch.linger_ms, config.clock.beacon) == (20, False)


def test_a_mistake_in_the_environment_names_the_variable(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"environment ROOTRANK_SHIPPER__KAFKA__BOTSTRAP: unknown key kafka\.botstrap"
    ):
        loaded(tmp_path, "", {"ROOTRANK_SHIPPER__KAFKA__BOTSTRAP": "x"})


def test_replay_takes_clocks_and_claims_from_the_file(tmp_path: Path) -> None:
    claim = "[clock.claim]\noffset_ns = -5\nbound_ns = 7\nby = 'ntp'\n"
    config = loaded(tmp_path, f"run = 'replay'\nrun_id = 'r1'\n{STATIC}{claim}")

    assert config.clock.static is not None
    assert config.clock.claim == ClockClaim(offset_ns=-5, bound_ns=7, by="ntp")
    assert config.machine_id == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [("end", StartAt(at_end=True)), ("beginning", StartAt()), ("15m", StartAt(age_ns=900 * 10**9))],
)
def test_start_at_is_a_place_or_an_age(text: str, expected: StartAt) -> None:
    assert parse_start_at(text) == expected
