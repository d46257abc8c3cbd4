"""Coverage-guided fuzzing of the whole reading path with atheris: `make fuzz`, or `python -m tests.fuzz -runs=100000`.

Raw bytes become the lines of one source; any exception is a finding, kept by libFuzzer as a file to replay.
"""

import sys

import atheris

with atheris.instrument_imports(include=["pipeline", "schemas"]):
    from tests.lines.reading import events_of

KINDS = ("application", "kernel", "service")


def read(data: bytes) -> None:
    """One input."""
    for event in events_of(data[1:].decode("utf-8", "replace"), KINDS[data[0] % 3] if data else KINDS[0]):
        if event.lo_unix_nano > event.hi_unix_nano:
            raise AssertionError(f"bounds of {event.name} are crossed")


if __name__ == "__main__":
    atheris.Setup(sys.argv, read)
    atheris.Fuzz()
