"""Settings that do not fit together are said before anything is tried, and no text holds a secret."""

from pathlib import Path

import pytest

from schemas.kafka_access import Access, AccessError, from_environment, incomplete, secret, stamps, too_open

TLS = {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512"}


@pytest.mark.parametrize(
    ("access", "says"),
    [
        (Access(security_protocol="SASL_SSL"), "sasl_mechanism is not set; set SCRAM-SHA-512"),
        (Access(**TLS, sasl_username="a"), "sasl_password_file is not; set both"),  # type: ignore[arg-type]
        (Access(sasl_mechanism="PLAIN"), "security_protocol is PLAINTEXT; set SASL_SSL"),
        (Access(security_protocol="SSL", ssl_keyfile="k"), "ssl_certfile is not; set both"),
        (Access(ssl_cafile="ca"), "security_protocol is PLAINTEXT; set SSL or SASL_SSL"),
        (Access(), ""),
        (Access(security_protocol="SSL"), ""),
    ],
)
def test_settings_that_contradict_each_other_are_said(access: Access, says: str) -> None:
    assert incomplete(access).endswith(says)
    assert bool(incomplete(access)) == bool(says)


def test_the_environment_says_how_to_log_in(tmp_path: Path) -> None:
    said = {
        "KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "KAFKA_SASL_MECHANISM": "SCRAM-SHA-256", "KAFKA_SASL_USERNAME": "w",
        "KAFKA_SASL_PASSWORD_FILE": str(tmp_path / "p"), "KAFKA_BOOTSTRAP": "x:1",
    }  # fmt: skip
    access = from_environment(said)
    assert (access.uses_tls, access.logs_in, access.sasl_username) == (True, True, "w")
    assert from_environment({"KAFKA_BOOTSTRAP": "x:1", "KAFKA_SSL_CAFILE": ""}) == Access()


@pytest.mark.parametrize("name", ["KAFKA_SECURITY_PROTOCOL", "KAFKA_SASL_MECHANISM"])
def test_a_word_in_the_environment_that_is_none_is_named_and_not_repeated(name: str) -> None:
    with pytest.raises(AccessError, match=f"{name} is none of") as caught:
        from_environment({name: "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_a_secret_is_read_without_the_end_of_its_line_each_time(tmp_path: Path) -> None:
    path = tmp_path / "p"
    access = Access(sasl_password_file=str(path))
    before = stamps(access)
    path.write_text(" a b \r\n", encoding="utf-8")
    assert access.password() == " a b "
    assert stamps(access) != before
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(AccessError, match="no text in UTF-8"):
        access.password()
    with pytest.raises(AccessError, match="put it there, or correct the setting"):
        secret(str(tmp_path / "gone"), "sasl_password_file")


def test_a_secret_that_everybody_can_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "p"
    path.write_text("x", encoding="utf-8")
    path.chmod(0o640)
    access = Access(sasl_password_file=str(path), ssl_keyfile=str(tmp_path / "gone"))
    assert too_open(access) == []
    path.chmod(0o644)
    assert too_open(access) == [f"sasl_password_file {path} can be read by every user of this machine; chmod 600 it"]
