"""The engine with one user who has what sql/roles.sql gives the reader: it prints what becomes of statements.

An embedded engine cannot create users; a profile, a quota and grants in its configuration are the same to it.
Arguments: a folder, and a list of statements (JSON); the SQL comes on standard input. It is a process of its own, as
an engine has one folder.
"""

import json
import re
import sys
from pathlib import Path
from urllib.parse import quote
from xml.sax.saxutils import escape

from chdb.session import Session

from pipeline.store.sqlfiles import split_statements

_SETTING = re.compile(r"(\w+) = ('?)(\w+)\2( CONST)?(?: MIN (\d+))?(?: MAX (\d+))?")


def users(sql: str) -> str:
    """The users of an engine as XML: its only user as the reader of the SQL."""
    statements = split_statements(sql)
    (profile,) = [s for s in statements if "ALTER SETTINGS PROFILE" in s]
    (quota,) = [s for s in statements if "CREATE QUOTA" in s]
    grants = [" ".join(line for line in s.splitlines() if not line.startswith("--")) for s in statements]
    values, bounds = "", ""
    for name, _, value, const, least, most in _SETTING.findall(profile.partition("SETTINGS\n")[2]):
        values += f"<{name}>{value}</{name}>"
        inner = f"<min>{least}</min><max>{most}</max>" if most else "<readonly/>" if const else ""
        bounds += f"<{name}>{inner}</{name}>" if inner else ""
    limits = "".join(f"<{n}>{v}</{n}>" for n, v in re.findall(r"(\w+) = (\d+)", quota.partition("MAX ")[2]))
    queries = "".join(
        f"<query>{escape(grant.rpartition(' TO ')[0])}</query>" for grant in grants if grant.startswith("GRANT SELECT")
    )
    return f"""<clickhouse>
      <profiles><default>{values}<constraints>{bounds}</constraints></default></profiles>
      <quotas><default><interval><duration>3600</duration>{limits}</interval></default></quotas>
      <users><default><password/><networks><ip>::/0</ip></networks><profile>default</profile><quota>default</quota>
        <grants>{queries}</grants></default></users>
    </clickhouse>"""


def session(folder: Path, name: str, text: str) -> Session:
    """The engine with these users."""
    (folder / f"{name}.xml").write_text(text, encoding="utf-8")
    config = folder / f"{name}_config.xml"
    config.write_text(
        f"<clickhouse><logger><level>none</level></logger>"
        f"<users_config>{folder / name}.xml</users_config></clickhouse>",
        encoding="utf-8",
    )
    return Session(f"{folder / 'store'}?config-file={quote(str(config))}")


def main(folder: Path, statements: list[str], sql: str) -> list[str]:
    """For each statement its result, or the name of the error."""
    maker = Session(str(folder / "store"))
    maker.query("CREATE DATABASE rootrank")
    maker.query("CREATE TABLE rootrank.t (x UInt64) ENGINE = MergeTree ORDER BY x")
    maker.query("INSERT INTO rootrank.t SELECT number FROM numbers(1000)")
    maker.close()
    reader, answers = session(folder, "users", users(sql)), []
    for statement in statements:
        try:
            answers.append(str(reader.query(statement, "TSV")).strip())
        except Exception as error:
            answers.append(str(error).rpartition("(")[2].rstrip(") \n"))
    reader.close()
    return answers


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), json.loads(sys.argv[2]), sys.stdin.read())))
