"""Every cause rule is linted, and every story in it is played through the whole core."""

import re
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import msgspec
import pytest

from pipeline.core import derived
from pipeline.core.causes import TEMPLATE_NAMES, Case, Rule
from pipeline.rulebook.stories import main_incident, story_problem
from pipeline.rules import RuleFileError, _convert, load_rules
from schemas import signals
from schemas.decoders import DECODERS
from schemas.vocabulary import CLASSES, LABELS

RULES = {rule.id: rule for rule in load_rules().rules}
FILES = sorted(
    entry.name for entry in files("pipeline").joinpath("causes").iterdir()
    if entry.name.endswith(".toml") and entry.name != "shared.toml"
)  # fmt: skip
STORIES = [(rule.id, case) for rule in RULES.values() for case in rule.story]
EVENTS = {signal.event for signal in signals.load().signals} | derived.EVENTS
# Lines that stand under a frame of Python carry what the frame says.
FRAME = {a for s in signals.load().signals if s.event == "python.frame" for a in s.types}
ATTRIBUTES = {
    name: {
        *(a for s in signals.load().signals if s.event == name for a in (*s.types, *s.sets, *s.renames.values())),
        *(a for s in signals.load().signals if s.event == name and s.decode for a in DECODERS[s.decode].names),
        *derived.ATTRIBUTES.get(name, ()),
        *(FRAME if name == "python.exception" else ()),
    }
    for name in EVENTS
}  # fmt: skip


# --- lint ---------------------------------------------------------------------------------------------------------


def test_each_file_is_one_rule_of_its_name() -> None:
    assert [f"{rule.id}.toml" for rule in load_rules().rules] == FILES


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_names_a_class_of_the_vocabulary_that_can_be_an_incident(rule: Rule) -> None:
    assert rule.class_ in CLASSES
    assert not rule.class_.startswith("unknown/"), "unknown is what is left when no rule fits"


def test_no_two_rules_conclude_the_same_class() -> None:
    classes = [rule.class_ for rule in RULES.values()]
    assert sorted(classes) == sorted(set(classes))


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_says_where_its_knowledge_comes_from(rule: Rule) -> None:
    assert rule.references
    assert all(len(reference) > 10 for reference in rule.references)
    assert re.fullmatch(r"C\d+(, C\d+)*", rule.chain)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_has_one_story_that_concludes_it_and_two_that_do_not(rule: Rule) -> None:
    own = [case for case in rule.story if case.concludes == rule.class_]
    others = [case for case in rule.story if case.concludes != rule.class_]
    assert len(own) >= 1
    assert len(others) >= 2
    names = [case.name for case in rule.story]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_confidence_and_strength_are_shares(rule: Rule) -> None:
    assert 0 < rule.confidence <= 1
    assert 0 < rule.strength <= 1
    assert all(p.confidence is None or 0 < p.confidence < rule.confidence for p in rule.root)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_groups_of_a_rule_exist(rule: Rule) -> None:
    assert rule.root
    assert set(rule.groups) <= set(load_rules().groups)


def _patterns(rule: Rule) -> Iterator[tuple[str, dict[str, list[str]]]]:
    for pattern in rule.root:
        yield pattern.event, pattern.where | {name: [] for name in pattern.has}
        for condition in (*pattern.given, *pattern.unless):
            yield condition.event, condition.where
    for link in (*rule.before, *load_rules().effects(rule)):
        yield link.event, link.where


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_every_event_and_attribute_of_a_rule_is_one_that_some_signal_gives(rule: Rule) -> None:
    unknown = sorted({event for event, _ in _patterns(rule)} - EVENTS)
    assert not unknown, f"no signal gives {unknown}"
    missing = sorted(
        {f"{event}.{name}" for event, where in _patterns(rule) for name in where if name not in ATTRIBUTES[event]}
    )
    assert not missing, f"no signal gives {missing}"
    after = {name for link in load_rules().effects(rule) for name in link.after}
    assert after <= EVENTS
    assert {label for pattern in rule.root for label in pattern.labels} <= LABELS


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_no_pattern_names_a_host_a_job_or_a_path(rule: Rule) -> None:
    values = {v for _, where in _patterns(rule) for name, wanted in where.items() if name != "sxid" for v in wanted}
    named = {value for value in values if re.search(r"(?:^|\s)/|/\S*/|\d{5,}|[a-z]+-?\d{2,}$|\.(?:log|txt)$", value)}
    assert not named


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_templates_use_names_that_a_culprit_has(rule: Rule) -> None:
    # A module that a root's line may name is a target; where none does, its node is.
    part = {"part"} if any({"dimm", "sensor"} & ATTRIBUTES[pattern.event] for pattern in rule.root) else set()
    assert set(re.findall(r"\{(\w+)\}", rule.action.target)) <= TEMPLATE_NAMES | part
    texts = [rule.action.why, rule.not_network_because or ""]
    texts += [pattern.not_network_because or "" for pattern in rule.root]
    used = {name for text in texts for name in re.findall(r"\{(\w+)\}", text)}
    assert used <= TEMPLATE_NAMES
    for pattern in rule.root:
        # What a comparison says in numbers is known of no other root.
        numbers = {"numbers"} & ATTRIBUTES[pattern.event]
        told = pattern.explanation or rule.explanation
        assert set(re.findall(r"\{(\w+)\}", told)) <= TEMPLATE_NAMES | numbers


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_reads_as_sentences(rule: Rule) -> None:
    said = [text for p in rule.root for text in (p.explanation, p.consequence, p.not_network_because) if text]
    for sentence in (rule.explanation, rule.consequence, rule.not_network_because or "", *said):
        assert not sentence.endswith("."), "the full stop is put where the sentence ends"
    for link in (*rule.before, *load_rules().effects(rule)):
        assert link.why
        assert link.why == link.why.strip()
        assert not link.why.endswith(".")


def test_coalescing_names_events_once_and_with_a_window() -> None:
    shared = tomllib.loads(files("pipeline").joinpath("causes", "shared.toml").read_text(encoding="utf-8"))
    names = [how["event"] for how in shared["coalesce"]]
    assert sorted(names) == sorted(set(names))
    assert all(how["window_s"] > 0 for how in shared["coalesce"])
    assert not sorted(set(names) - EVENTS)
    variants = {f"{how['event']}.{v}" for how in shared["coalesce"] for v in how.get("variant", [])}
    given = {f"{event}.{name}" for event, attributes in ATTRIBUTES.items() for name in attributes}
    assert not sorted(variants - given)


def test_every_group_is_used_by_some_rule() -> None:
    assert {group for rule in RULES.values() for group in rule.groups} == set(load_rules().groups)


def test_a_rule_file_with_a_wrong_field_is_refused_with_file_and_field() -> None:
    text = files("pipeline").joinpath("causes", "cuda_oom.toml").read_text(encoding="utf-8")
    with pytest.raises(RuleFileError, match=r"mine\.toml: .*strenght"):
        _convert("mine.toml", text.replace("strength", "strenght", 1), Rule)
    with pytest.raises(RuleFileError, match=r"mine\.toml"):
        _convert("mine.toml", "id = ", Rule)


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [
        ("target", "the card of {serial_number}", r"action\.target names \['serial_number'\]; use some of .*'serial'"),
        ("target", "{numbers} on {node}", "action.target names"),
        ("explanation", "{part} of {who} failed", "explanation names"),
        ("explanation", "{} failed", "explanation names"),
        ("why", "{who", "action.why: expected"),
    ],
)
def test_a_sites_rule_that_names_what_nothing_fills_is_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, text: str, said: str
) -> None:
    rule = files("pipeline").joinpath("causes", "cuda_oom.toml").read_text(encoding="utf-8")
    (tmp_path / "causes").mkdir()
    changed = re.sub(rf"^{field} = .*$", f'{field} = "{text}"', rule, count=1, flags=re.MULTILINE)
    (tmp_path / "causes" / "cuda_oom.toml").write_text(changed)
    monkeypatch.setenv("ROOTRANK_RULES", str(tmp_path))
    with pytest.raises(RuleFileError, match=rf"cuda_oom\.toml: {said}"):
        load_rules.__wrapped__()


# --- stories ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rule_id", "case"), STORIES, ids=[f"{rule}: {case.name}" for rule, case in STORIES])
def test_a_story_concludes_what_it_says(rule_id: str, case: Case) -> None:
    shown = msgspec.json.format(msgspec.json.encode(main_incident(case)), indent=1).decode()
    assert not story_problem(RULES[rule_id], case), shown


@pytest.mark.parametrize(("rule_id", "case"), STORIES, ids=[f"{rule}: {case.name}" for rule, case in STORIES])
def test_every_line_of_a_story_is_one_that_some_signal_reads(rule_id: str, case: Case) -> None:
    from pipeline.core.parse import parse_line

    # A text inside an object has several lines.
    bodies = [parse_line(line["line"]).body.split("\n") for line in case.lines]
    unread = [body for body in bodies if all(signals.load().match(part) is None for part in body)]
    assert not unread, f"{rule_id}: a story with lines that mean nothing proves nothing"
