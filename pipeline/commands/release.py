"""`rootrank release`."""

import getpass
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import orjson
import typer

from pipeline.commands.services import DEFAULT_BOOTSTRAP, Bootstrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.trust.releasing import Failed

USAGE: Final = 2
UNREACHABLE: Final = 3


def release(
    *,
    reporter: Annotated[str, typer.Option(help="The machine in whose name the lines were sent.")],
    trust_keys: Annotated[
        Path,
        typer.Option("--trust-keys", envvar="ROOTRANK_TRUST_KEYS", help="The public keys, as the worker has them."),
    ],
    start: Annotated[str, typer.Option("--from", help="From when they reached Kafka: RFC 3339, UTC without a zone.")],
    end: Annotated[str, typer.Option("--to", help="Until when; default: now.")] = "",
    why: Annotated[str, typer.Option(help="Why they may count. Kept with them.")] = "",
    key_file: Annotated[
        Path | None, typer.Option(help="Private key of an operator (`rootrank-shipper keygen --operator`); signs it.")
    ] = None,
    key_id: Annotated[str, typer.Option(help="Its id, where it is not its fingerprint.")] = "",
    who: Annotated[str, typer.Option(help="Who lets them count; default: the name of this user.")] = "",
    cluster: Annotated[str, typer.Option(help="The cluster of the machine.")] = "default",
    kafka: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be released.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Let lines count that were left out because their signature failed its check.

    They are read from the topic raw, so within its retention (3 days). What is left out: rootrank query unverified.

    \b
    Example:
      rootrank release --reporter gpu-01 --from 2026-03-01T10:00:00 --to 2026-03-01T12:00:00 \\
        --why "its key had run out" --key-file ops.key --trust-keys keys.toml
    """  # noqa: D301 - \b keeps the lines of an example apart
    from kafka.errors import KafkaError

    from pipeline.kafka_access import access, refusal
    from pipeline.trust.judge import Judge, TrustSettings
    from pipeline.trust.keys import KeysError
    from pipeline.trust.releasing import Asked, Operator, OperatorKeyError, find, send

    asked = Asked(cluster=cluster, reporter=reporter, from_ms=_ms("--from", start), to_ms=_ms("--to", end))
    if not dry_run and (key_file is None or not why):
        _refuse("give --key-file and --why, or --dry-run to look only", USAGE)
    try:
        judge = Judge(TrustSettings(policy="require", keys=trust_keys))
        operator = Operator(key_file, key_id) if key_file else None
        if refused := refusal(kafka, access()):
            _refuse(f"Kafka at {kafka}: {refused}", UNREACHABLE)
        failed = find(kafka, access(), judge, asked)
        lines = sum(len(each.batch.records) for each in failed)
        if operator is not None and not dry_run:
            lines = send(kafka, access(), operator, asked, failed, who or getpass.getuser(), why)
    except (KeysError, OperatorKeyError) as error:
        _refuse(str(error), USAGE)
    except KafkaError as error:
        _refuse(f"Kafka at {kafka}: {error}", UNREACHABLE)
    _tell(failed, lines, reporter, dry_run=dry_run, as_json=as_json)


def _tell(failed: "Sequence[Failed]", lines: int, reporter: str, *, dry_run: bool, as_json: bool) -> None:
    """What was released, or would be."""
    from pipeline.report.words import visible

    reasons = Counter(each.why for each in failed)
    if as_json:
        told = {"released": not dry_run, "batches": len(failed), "lines": lines, "reasons": dict(reasons)}
        typer.echo(orjson.dumps(told).decode())
        return
    did = "would be released" if dry_run else "are released"
    typer.echo(f"{lines} lines in {len(failed)} batches of {visible(reporter)} {did}")
    for reason, count in reasons.most_common():
        typer.echo(f"  {count} batches: {visible(reason)}")


def _ms(option: str, text: str) -> int:
    if not text:
        return round((datetime.now(UTC) + timedelta(seconds=1)).timestamp() * 1000)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no time; write 2026-03-01T10:00:00Z", param_hint=option) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _refuse(text: str, code: int) -> NoReturn:
    typer.echo(f"rootrank: {text}", err=True)
    raise typer.Exit(code)
