"""`rootrank-shipper keygen`: a key that signs what this node ships."""

import argparse
import socket
from pathlib import Path
from typing import Final

import orjson

from shippers.saying import say

_LONGEST: Final = 64


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """The parser of the command."""
    text = "make a key for [signing] and print what the pipeline must know of it"
    parser = commands.add_parser(
        "keygen", help=text, description=text, epilog="example: rootrank-shipper keygen --out /etc/rootrank/keys"
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder for the key; only its owner reads it"
    )
    parser.add_argument("--key-id", default="", metavar="ID", help="default: a fingerprint of the key")
    parser.add_argument("--cluster", default="default", help="as in the settings of the node")
    parser.add_argument("--reporter", default="", help="as in the settings of the node (default: the host name)")
    parser.add_argument("--operator", action="store_true", help="a key for `rootrank release`, of no node")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


def run(options: argparse.Namespace) -> int:
    """Make it. Returns the exit code."""
    from shippers.signing import make_key

    if not all(each.isascii() and (each.isalnum() or each in "._-") for each in options.key_id[: _LONGEST + 1]) or (
        len(options.key_id) > _LONGEST or options.key_id.startswith(".")
    ):
        say("--key-id may hold letters, digits, dots, dashes and underscores, 64 at most")
        return 2
    try:
        path, key_id, public = make_key(options.out, options.key_id)
    except FileExistsError:
        say(f"{options.out / options.key_id}.key is there already and is kept; give another --key-id")
        return 2
    who = {} if options.operator else {"cluster": options.cluster, "reporter": options.reporter or socket.gethostname()}
    told = {**who, "key_id": key_id, "public": public}
    if options.json:
        print(orjson.dumps({"key_file": str(path), **told}).decode())
        return 0
    print(f"private key: {path} (keep it on this machine)")
    print(f"key id:      {key_id}\npublic key:  {public}\n\nfor the keys.toml of the pipeline:\n")
    print("[[operator]]" if options.operator else "[[key]]")
    print("\n".join(f"{name} = {orjson.dumps(value).decode()}" for name, value in told.items()))
    return 0
