import re
from pathlib import Path

import pytest

from schemas.records import ClockClaim, ClockReading
from shippers.builtin import BUILT_IN, check_switches
from shippers.config import Config, ConfigError, SourceSettings, StartAt, load, parse_start_at

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


EXAMPLE = ROOT / "deploy" / "node.example.toml"
TABLES = ("batch", "kafka", "spool", "clock", "capture", "nvml", "journal", "jobs", "signing", "redact")


def test_the_example_file_shows_the_defaults() -> None:
    config = load(EXAMPLE, {})

    for name in (*TABLES, "profile", "sources", "start_at", "end_file", "run", "cluster"):
        assert getattr(config, name) == getattr(Config(), name), name
    assert [type(each) for each in config.source] == [SourceSettings, SourceSettings]


@pytest.mark.parametrize("table", [*TABLES, "clock.claim", "clock.static", "source"])
def test_the_example_file_names_every_key_in_its_table(table: str) -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    parts = re.split(r"^(?:# )?\[{1,2}([a-z.]+)\]{1,2}$", text, flags=re.MULTILINE)
    shown = "".join(body for name, body in zip(parts[1::2], parts[2::2], strict=True) if name == table)
    tables = {"clock.claim": ClockClaim, "clock.static": ClockReading, "source": SourceSettings}
    kind = tables.get(table) or type(getattr(Config(), table))
    own = {"clock": {"claim", "static"}, "redact": {"pattern"}, "clock.static": {"width_ns"},
           "clock.claim": {"knots", "others_bound_ns", "timeline"}}  # fmt: skip
    named = set(re.findall(r"^(?:# )?([a-z_]+) = ", shown, flags=re.MULTILINE))

    assert named == set(kind.__struct_fields__) - own.get(table, set())


def test_the_example_file_names_every_source_and_the_tables_of_a_clock_behind_it() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    tables = re.findall(r"^(?:# )?\[{1,2}([a-z.]+)\]{1,2}$", text, flags=re.MULTILINE)
    comment = text[text.index("# Single ones on or off") : text.index("[sources]")]

    assert tables.index("clock.claim") == tables.index("clock") + 1
    assert tables.index("clock.static") == tables.index("clock") + 2
    assert tables[-2:] == ["source", "source"]
    for each in BUILT_IN:
        level = "none of them holds" if each.by_name_only else each.profile
        assert re.search(rf"^# {level}:(?:[^:]|\n#  )*\b{each.name}\b", comment, flags=re.MULTILINE), each.name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clutser = 'x'", r"node.toml: unknown key clutser; did you mean cluster\?"),
        ("[kafka]\nbootstrp = 'x'", r"node.toml: unknown key kafka.bootstrp; did you mean bootstrap\?"),
        ("[[source]]\npaht = 'x'", r"node.toml: unknown key source.paht; did you mean path\?"),
        ("[clock.claim]\noffset = 1", "unknown key clock.claim.offset"),
        ("[batch]\nlines = 'many'", "node.toml: batch.lines: Expected `int`, got `str`"),
        ("profile = 'gpus'", """profile: Invalid enum value 'gpus'; write "none", "minimal", "gpu", "full"$"""),
        (
            "[[source]]\nkind = 'kern'",
            r"""source\[0\].kind: Invalid enum value 'kern'; write "kernel", "application", """,
        ),
        ("[control.kubernetes]\nwatch = 3", "control.kubernetes.watch: Expected `array`, got `int`"),
        ("[sources]\npressure = 1", r"sources\[...\]: Expected `bool`, got `int`"),
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


@pytest.mark.parametrize("name", ["jobs", "nvml", "memory", "redaction", "spool", "clock"])
def test_no_file_is_called_as_a_source_of_the_agents_own(tmp_path: Path, name: str) -> None:
    config = loaded(tmp_path, f'[[source]]\nname = "{name}"\npath = "/var/log/rank0.log"\n')

    with pytest.raises(ConfigError, match="give it another name"):
        check_switches(config)


def test_a_nul_character_is_refused_with_its_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"spool\.dir holds a NUL"):
        loaded(tmp_path, '[spool]\ndir = "/tmp/a\\u0000b"\n')


@pytest.mark.parametrize("setting", ["cluster", "reporter"])
@pytest.mark.parametrize("name", ["n1\nn2", "n\x1b[31m1", "n" * 254, "  "])
def test_a_name_that_stands_in_keys_and_on_pages_is_short_and_printable(
    tmp_path: Path, setting: str, name: str
) -> None:
    said = name.encode("unicode_escape").decode("ascii").replace("\\x1b", "\\u001b")
    with pytest.raises(ConfigError, match=rf"node.toml: {setting} must be 1 to 253 printable characters"):
        loaded(tmp_path, f'{setting} = "{said}"')


def test_a_device_in_place_of_settings_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"/dev/zero: cannot be read: larger than 1024 KiB"):
        load(Path("/dev/zero"), {})


def test_settings_nested_without_end_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nested too deep"):
        loaded(tmp_path, f"a = {'[' * 5000}{']' * 5000}")
