"""`rootrank verdict`."""

import os
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from pipeline.asking import Asking, Deadline, Source, TooLateError, after, ask_feed, ask_folder, joined
from pipeline.core.hosts import expand_hosts
from pipeline.core.launcher import Advice, Asked, Told, advise
from pipeline.report.advice import Form, write_advice
from pipeline.report.words import visible
from pipeline.web import DEFAULT_HOST, DEFAULT_PORT

JOB_PREFIX = "job:"


def verdict(
    subject: Annotated[
        str,
        typer.Argument(metavar="JOB|PATH", help="A job id, or a file or folder of logs; job:ID is never a path."),
    ],
    *,
    wait_s: Annotated[float, typer.Option(min=1, max=86_400, help="Answer after so many seconds at the latest.")] = 30,
    form: Annotated[Form, typer.Option("--format", help="What standard output holds.")] = Form.JSON,
    attempt: Annotated[int | None, typer.Option(min=0, help="Attempt of the job; default: the last one known.")] = None,
    earlier: Annotated[
        list[str] | None, typer.Option(help="Id of a job that was an earlier attempt; as often as needed.")
    ] = None,
    nodes: Annotated[
        str, typer.Option(help="The cluster's nodes, as a Slurm host list; default: those that are known.")
    ] = "",
    cluster: Annotated[str, typer.Option(help="Only this cluster.")] = "",
    run: Annotated[str, typer.Option(help="live, replay, drill or all.")] = "live",
    url: Annotated[
        str, typer.Option(envvar="ROOTRANK_URL", help="Address of the feed.")
    ] = f"http://{DEFAULT_HOST}:{DEFAULT_PORT}",
    clickhouse_url: Annotated[
        str,
        typer.Option(
            envvar="CLICKHOUSE_URL",
            help="Also ask this ClickHouse for nodes and earlier attempts, as whom the environment says (see `query`).",
        ),
    ] = "",
) -> None:
    """Say what a launcher should do with a job that failed: restart, and without which nodes, or not.

    The answer is restart, restart_excluding (with nodes, each with a reason and until when), do_not_restart (the
    program failed again as it did before) or undecided. A verdict that is not settled is waited for, until --wait-s.
    What cannot be read or reached gives undecided: the exit code is 0 for every answer, 2 for a wrong option.

    \b
    In a Slurm batch script, after srun failed:
      said=$(rootrank verdict "job:$SLURM_JOB_ID" --attempt "${SLURM_RESTART_COUNT:-0}" --wait-s 90)
      [ "$(jq -r .answer <<<"$said")" = do_not_restart ] || scontrol requeue "$SLURM_JOB_ID"

    \b
    For the next submission:
      sbatch --exclude="$(rootrank verdict job:48211 --format slurm-exclude)" train.sh

    \b
    Around torchrun:
      torchrun --log-dir logs … || rootrank verdict ./logs | jq -r .answer

    \b
    In a Kubernetes operator, as spec.affinity of the next pod:
      rootrank verdict "job:$JOB_UID" --format k8s-affinity

    Whole scripts stand in docs/launchers.md.
    """  # noqa: D301 - \b keeps the lines of an example apart
    asked = Asked(job=None, attempt=attempt, earlier=tuple(earlier or ()))
    source = Source(url=url, run=run, cluster=cluster)
    written = write_advice(_answer(subject, asked, wait_s, nodes, source, clickhouse_url), form)
    for line in written.err:
        typer.echo(visible(line), err=True)
    sys.stdout.write(written.out)


def _answer(subject: str, asked: Asked, wait_s: float, nodes: str, source: Source, clickhouse_url: str) -> Advice:
    """A launcher needs an answer: that this failed is no finding about the job."""
    try:
        return _advice(subject, asked, wait_s, nodes, source, clickhouse_url)
    except Exception:
        traceback.print_exc()
        told = Told(remarks=["rootrank failed; please report what it wrote on standard error"])
        return advise(told, msgspec.structs.replace(asked, job=subject), datetime.now(UTC))


def _advice(subject: str, asked: Asked, wait_s: float, nodes: str, source: Source, clickhouse_url: str) -> Advice:
    is_job = subject.startswith(JOB_PREFIX)
    if not is_job and subject and ("/" in subject or os.path.exists(subject)):  # noqa: PTH110 - no name makes it raise
        told, asked = ask_folder(Path(subject), asked, wait_s)
    else:
        asked = msgspec.structs.replace(asked, job=subject.removeprefix(JOB_PREFIX))
        told = _of_job(asked, after(wait_s), source, clickhouse_url)
    return advise(_with_nodes(told, nodes), asked, datetime.now(UTC))


def _of_job(asked: Asked, deadline: Deadline, source: Source, clickhouse_url: str) -> Told:
    if not asked.job:
        return Told(remarks=["no job is named"])
    stored = Asking(lambda: _stored(asked, source, clickhouse_url)) if clickhouse_url else None
    told = ask_feed(source, asked, deadline)
    if stored is None:
        return told
    try:
        return joined(told, stored.answer(deadline))
    except TooLateError:
        return joined(told, Told(remarks=["ClickHouse did not answer in time"]))


def _stored(asked: Asked, source: Source, clickhouse_url: str) -> Told:
    """What the store tells; that it cannot be asked is a remark."""
    try:
        from pipeline.store.errors import StoreError
        from pipeline.store.jobs import histories, told_by
    except ImportError as error:
        return Told(remarks=[f"ClickHouse was not asked: the package {error.name} is missing"])
    jobs = (asked.job or "", *asked.earlier)
    try:
        return told_by(histories(clickhouse_url, jobs, os.environ, run=source.run, cluster=source.cluster))
    except StoreError as error:
        return Told(remarks=[str(error)])


def _with_nodes(told: Told, nodes: str) -> Told:
    """The given list of nodes is the cluster's own: it replaces what is known."""
    if not nodes.strip():
        return told
    names = expand_hosts(nodes.strip())
    if names:
        return msgspec.structs.replace(told, nodes=names)
    remarks = [*told.remarks, "--nodes is no host list such as gpu[01-16],login1"]
    return msgspec.structs.replace(told, nodes=None, remarks=remarks)
