"""Who hangs where, by a table that somebody writes (CSV) or by a file topology.conf."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from shippers.control.kube_nodes import Head
from shippers.control.slurm import Ask, SlurmError
from shippers.control.slurm_looks import hung_elsewhere, leaves_of
from shippers.control.told import Line, words
from shippers.pieces import Told as Record

COLUMNS: Final = ("rack", "nvlink_domain", "leaf_switch", "power_feed")


class Table:
    """A file that is read again and again; only what changed is told."""

    def __init__(self, head: Head, path: Path) -> None:
        self._head = head
        self._path = path

    def look(self, ask: Ask, told: dict[str, str], since_ns: int, now_ns: int) -> Iterator[Line | Record]:
        """Nodes that hang elsewhere than was told. Raises SlurmError, the error of all that are asked now and then."""
        try:
            text = self._path.read_text(encoding="utf-8")
        except OSError as error:
            raise SlurmError(f"{self._path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise SlurmError(f"{self._path}: not UTF-8") from None
        if self._path.suffix == ".csv":
            hung = _rows(self._path, text)
        else:
            hung = {node: {"leaf_switch": switch} for node, switch in leaves_of(text).items()}
        yield from hung_elsewhere(self._head, self._path.name, hung, told, now_ns)


def _rows(path: Path, text: str) -> dict[str, dict[str, str]]:
    rows = csv.DictReader(text.splitlines())
    names = set(rows.fieldnames or ())
    if "node" not in names or not names & set(COLUMNS):
        raise SlurmError(f"{path}: the first line must name the columns node and some of {', '.join(COLUMNS)}")
    hung = {}
    for row in rows:
        told = {column: value for column in COLUMNS if (value := words(row.get(column)).replace(",", "_"))}
        if node := words(row["node"]):
            hung[node] = told
    return hung
