"""What the shipper's settings say of a source, by its attributes."""

from msgspec import Struct

from pipeline.core.dating import NOTHING_SAID, Dating, told


class Stated(Struct, frozen=True, kw_only=True):
    """What the shipper's settings say of a source, checked."""

    kind: str = "application"
    node: str | None = None
    job_id: str = ""
    attempt: int = 0
    rank: int | None = None
    printer: dict[str, int | str] = {}
    undated: bool = False
    dating: Dating = NOTHING_SAID


def stated(attributes: dict[str, str]) -> tuple[Stated, list[str]]:
    """The attributes of a source as values, and what is wrong with those that are none."""
    wrong: list[str] = []

    def number(name: str) -> int | None:
        text = attributes.get(name)
        if text is None or (text.isascii() and text.isdigit() and len(text) < 10):
            return int(text) if text else None
        wrong.append(f"{name} = {text[:40]!r} is no number")
        return None

    dating, untimely = told(attributes)
    printer: dict[str, int | str | None] = {name: number(name) for name in ("local_rank", "task", "pid")}
    printer["pod"] = attributes.get("pod")
    return Stated(
        kind=attributes.get("kind", "application"), node=attributes.get("node"), job_id=attributes.get("job.id", ""),
        attempt=number("job.attempt") or 0, rank=number("rank"),
        printer={name: value for name, value in printer.items() if value is not None},
        undated=attributes.get("job.undated") == "true", dating=dating,
    ), wrong + untimely  # fmt: skip
