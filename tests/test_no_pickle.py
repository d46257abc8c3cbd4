"""No part of the product can execute a pickle: what could is imported nowhere."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FORBIDDEN = {
    "pickle",
    "_pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "joblib",
    "shelve",
    "marshal",
    "torch",
    "pickletools",
}
CALLS = {"eval", "exec", "compile"}


def _modules(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
            yield f"builtins.{node.func.id}"


def _offences(source: str) -> set[str]:
    found = set(_modules(ast.parse(source)))
    return {name for name in found if name.partition(".")[0] in FORBIDDEN or name.startswith("builtins.")}


def test_no_product_code_imports_what_executes_pickles() -> None:
    files = [path for folder in ("pipeline", "schemas", "shippers", "sql") for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 100
    assert {str(path): _offences(path.read_text()) for path in files if _offences(path.read_text())} == {}


def test_the_check_sees_them() -> None:
    assert _offences("import pickle") == {"pickle"}
    assert _offences("from torch.distributed import x") == {"torch.distributed"}
    assert _offences("eval('1')") == {"builtins.eval"}
    assert _offences("from pipeline.core.pickles import read_pickle") == set()
