"""The SQL of fleet statistics, in sql/fleet."""

from functools import cache

from pipeline.store.sqlfiles import ROOT


@cache
def fleet_statement(name: str) -> str:
    """The statement `sql/fleet/NAME.sql`."""
    return (ROOT / "fleet" / f"{name}.sql").read_text(encoding="utf-8").strip()
