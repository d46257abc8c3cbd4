"""Tables, outlines and lists inside logs become lines that each stand by themselves."""

import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.document_kinds import Open
from pipeline.core.documents import MAX_OPEN, Documents, Flat
from pipeline.core.parse import parse_line
from schemas.documents import FIRST_BYTES, FOLLOW_BYTES, FormEntry, Sample, load_forms
from schemas.records import RawLine

ENTRIES = [form.entry for form in load_forms().in_order]
SAMPLES = [(entry, sample) for entry in ENTRIES for sample in entry.samples]
MISSES = [(entry, miss) for entry in ENTRIES for miss in entry.misses]


def name_of(value: object) -> str:
    return value.name if isinstance(value, FormEntry) else ""


def _line(number: int, body: str = "") -> RawLine:
    return RawLine(seq=number, source="s", generation="0", offset=number, line_no=number, body=body)


def _fed(documents: Documents, lines: list[str], writer: str = "", first: int = 1) -> list[Flat]:
    """The texts of lines that one writer said."""
    numbered = enumerate(lines, first)
    return [flat for number, text in numbered for flat in documents.feed(writer, _line(number), parse_line(text)).flats]


def _flat(lines: list[str]) -> list[str]:
    documents = Documents({})
    return [flat.text for flat in [*_fed(documents, lines), *documents.flush()]]


@pytest.mark.parametrize(("entry", "sample"), SAMPLES, ids=name_of)
def test_a_document_becomes_the_lines_that_its_form_says(entry: FormEntry, sample: Sample) -> None:
    assert _flat(sample.text.strip("\n").split("\n")) == sample.gives


@pytest.mark.parametrize(("entry", "miss"), MISSES, ids=name_of)
def test_what_looks_like_a_head_begins_nothing(entry: FormEntry, miss: str) -> None:
    memory: dict[str, Open] = {}
    Documents(memory).feed("", _line(1), parse_line(miss))
    assert entry.name not in {document.form for document in memory.values()}


@pytest.mark.parametrize("entry", ENTRIES, ids=name_of)
def test_the_head_of_every_form_has_one_of_its_hints(entry: FormEntry) -> None:
    form = load_forms().by_name[entry.name]
    for sample in entry.samples:
        heads = [line for line in sample.text.split("\n") if form.head.fullmatch(line.strip())]
        assert heads
        assert all(any(hint in head for hint in entry.hints) for head in heads)


@pytest.mark.parametrize(("entry", "sample"), SAMPLES, ids=name_of)
@pytest.mark.parametrize("before", ["step 6 loss 2.2", "NCCL version 2.21.5", ""])
def test_a_document_in_the_middle_of_a_log_is_found(entry: FormEntry, sample: Sample, before: str) -> None:
    lines = [before, *sample.text.strip("\n").split("\n"), "step 9 loss 2.0", "step 10 loss 2.0"]
    assert _flat(lines) == sample.gives


@pytest.mark.parametrize(("entry", "sample"), SAMPLES, ids=name_of)
def test_a_document_goes_on_where_a_batch_was_cut(entry: FormEntry, sample: Sample) -> None:
    lines = sample.text.strip("\n").split("\n")
    for cut in range(len(lines)):
        memory: dict[str, Open] = {}
        texts = [flat.text for flat in _fed(Documents(memory), lines[:cut])]
        memory = msgspec.json.decode(msgspec.json.encode(memory), type=dict[str, Open])
        rest = Documents(memory)
        texts += [flat.text for flat in [*_fed(rest, lines[cut:], first=cut + 1), *rest.flush()]]
        assert texts == sample.gives


@given(
    st.lists(st.sampled_from(SAMPLES), min_size=2, max_size=4),
    st.randoms(use_true_random=False),
)
def test_documents_of_several_writers_do_not_mix(
    chosen: list[tuple[FormEntry, Sample]],
    random: st.randoms,  # type: ignore[valid-type]
) -> None:
    """Whatever the order of the lines, each writer's document is read as if it were alone."""
    queues = {f"w{n}": sample.text.strip("\n").split("\n") for n, (_, sample) in enumerate(chosen)}
    documents, texts, number = Documents({}), dict[str, list[str]](), 0
    said_by = dict[int, str]()
    while queues:
        writer = random.choice(sorted(queues))  # type: ignore[attr-defined]
        number += 1
        said_by[number] = writer
        for flat in documents.feed(writer, _line(number), parse_line(queues[writer].pop(0))).flats:
            texts.setdefault(said_by[flat.line.offset], []).append(flat.text)
        if not queues[writer]:
            del queues[writer]
    for flat in documents.flush():
        texts.setdefault(said_by[flat.line.offset], []).append(flat.text)
    assert texts == {f"w{n}": sample.gives for n, (_, sample) in enumerate(chosen)}


def test_a_row_stands_for_the_line_that_said_it() -> None:
    lines = ["Filesystem Size Used Avail Use% Mounted on", "tmpfs 64M 64M 0 100% /dev/shm", "/dev/sda1 9G 1G 8G 12% /"]
    flats = _fed(Documents({}), lines)
    assert [(flat.line.line_no, flat.text.split(", ")[0]) for flat in flats] == [
        (2, "df: filesystem=tmpfs"), (3, "df: filesystem=/dev/sda1"),
    ]  # fmt: skip


def test_what_needs_several_lines_stands_for_the_last_of_them() -> None:
    lines = ["low 0", "high 0", "max 3", "oom 1", "oom_kill 1", "[rank3]: hello"]
    (flat,) = _fed(Documents({}), lines)
    assert flat.line.line_no == 5


def test_prefixes_of_a_row_say_who_wrote_it() -> None:
    lines = ["gpu07: Filesystem Size Used Avail Use% Mounted on", "gpu07: tmpfs 64M 64M 0 100% /dev/shm"]
    (flat,) = _fed(Documents({}), lines, writer="gpu07")
    assert flat.parsed.node == "gpu07"


def test_a_document_that_breaks_off_is_over_after_a_while() -> None:
    memory: dict[str, Open] = {}
    documents = Documents(memory)
    head = parse_line("#Entity   TMPTR  POWER")
    begun = FIRST_BYTES + 1
    documents.feed("", _line(begun), head)
    row = parse_line("GPU 0     74     312.4")
    assert documents.feed("", _line(begun + FOLLOW_BYTES), row).flats
    assert documents.feed("", _line(begun + FOLLOW_BYTES + 1), row).flats == []
    assert not documents.is_open


def test_a_file_that_begins_with_a_table_is_one_as_a_whole() -> None:
    documents = Documents({})
    documents.feed("", _line(0), parse_line("#Entity   TMPTR  POWER"))
    assert documents.feed("", _line(40 * FOLLOW_BYTES), parse_line("GPU 0     74     312.4")).flats


def test_a_writer_that_falls_silent_keeps_no_document_open() -> None:
    documents = Documents({})
    documents.feed("a", _line(FIRST_BYTES + 1), parse_line("NIC statistics:"))
    documents.feed("b", _line(FIRST_BYTES + FOLLOW_BYTES + 9), parse_line("step 3"))
    assert not documents.is_open


def test_open_documents_are_bounded() -> None:
    memory: dict[str, Open] = {}
    documents = Documents(memory)
    for number in range(3 * MAX_OPEN):
        documents.feed(f"w{number}", _line(number), parse_line("NIC statistics:"))
    assert len(memory) == MAX_OPEN


@given(st.lists(st.one_of(st.text(max_size=60), st.sampled_from([x for _, s in SAMPLES for x in s.text.split("\n")]))))
def test_any_lines_can_be_fed(lines: list[str]) -> None:
    _flat(lines)


@pytest.mark.parametrize(("entry", "sample"), SAMPLES, ids=name_of)
def test_a_very_long_line_takes_little_time(entry: FormEntry, sample: Sample) -> None:
    lines = sample.text.strip("\n").split("\n")
    long = [(line + " ") * (8_000 // (len(line) + 1)) for line in lines]
    documents = Documents({})
    start = time.process_time()
    _fed(documents, [line for pair in zip(lines, long, strict=True) for line in pair])
    assert time.process_time() - start < 0.5
