"""JSON lines as batches: forms, masks, windows, packing, order, and what is refused."""

from __future__ import annotations

import copy
import json
import pathlib
from array import array
from datetime import datetime, timedelta
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import tiny_models
from support.loaded import drain, load

from cowmlx.errors import (
    BadFormat,
    CowMlxError,
    InputOutput,
    InvalidArgument,
    NotFound,
    OutOfMemory,
)
from cowmlx.text.chat_template import ChatTemplate
from cowmlx.text.templates import callables
from cowmlx.training.language import data, examples
from cowmlx.training.language.rows import Row, pack

TEXTS = [{"text": "The quick brown fox. " * (1 + i % 7) + str(i)} for i in range(17)]
CHAT = {
    "messages": [
        {"role": "user", "content": "Who jumps?"},
        {"role": "assistant", "content": "The fox."},
    ],
    "id": 3,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return load(tiny_models.make(tmp_path_factory.mktemp("data"), "llama"), lazy=True)


def encoded(examples: list[Any]) -> bytes:
    return "\n".join(map(json.dumps, examples)).encode()


def read(model: Any, source: bytes | str | list[Any], **options: Any) -> data.LanguageData:
    raw = encoded(source) if isinstance(source, list) else source
    found: data.LanguageData = drain(data.read_lines(model, raw, data.DataOptions(options)))[0]
    return found


def epoch(source: data.LanguageData) -> list[list[tuple[list[int], list[bool]]]]:
    """An epoch's steps: of each row tokens and targets, without what fills it up."""
    steps = []
    while step := source.batch(0):
        rows = []
        for micro_batch in step.micro_batches:
            pairs = zip(micro_batch.tokens.tolist(), micro_batch.targets.tolist(), strict=True)
            for tokens, targets in pairs:
                end = len(targets) - targets[::-1].index(True)
                rows.append((tokens[:end], targets[:end]))
        steps.append(rows)
    return steps


def test_a_file_and_memory_give_the_same(model: Any, tmp_path: pathlib.Path) -> None:
    examples = [*TEXTS, CHAT, {"prompt": "Who?", "completion": "He."}]
    file = tmp_path / "data.jsonl"
    file.write_bytes(encoded(examples) + b"\r\n")
    here, there = read(model, examples), read(model, str(file))
    assert epoch(here) == epoch(there)
    assert here.info() == there.info()
    assert here.info()["lines"] == len(examples)


def test_tools_are_in_the_prompt(model: Any) -> None:
    tool = {"type": "function", "function": {"name": "leap", "parameters": {}}}
    offering = copy.copy(model)
    source = "{{ tools | tojson if tools }}" + model.chat_template.sources["default"]
    offering.chat_template = ChatTemplate({"default": source}, {}, thinking=False)
    for tools, count in (([tool], 1), (None, 0)):
        ((tokens, _),) = epoch(read(offering, [{**CHAT, "tools": tools}]))[0]
        assert model.tokenizer.decode(tokens, skip_special=False).count("leap") == count


def test_masked_prompts_are_no_targets(model: Any) -> None:
    ((tokens, targets),) = epoch(read(model, [CHAT], mask_prompt=True))[0]
    trained = [token for token, target in zip(tokens, targets, strict=True) if target]
    assert model.tokenizer.decode(trained, skip_special=False) == "The fox.<|im_end|>\n"
    ((_, every),) = epoch(read(model, [CHAT]))[0]
    assert every == [False] + [True] * (len(tokens) - 1)


def test_every_row_is_in_each_epoch_once(model: Any) -> None:
    source = read(model, TEXTS, batch_size=4, micro_batch=3, seed=5)
    first, second = epoch(source), epoch(source)
    plain = [row for step in epoch(read(model, TEXTS, shuffle=False)) for row in step]
    for each in (first, second):
        assert sorted(row for step in each for row in step) == sorted(plain)
        assert sorted(map(len, each)) == [1, 4, 4, 4, 4]
    assert first != second
    assert source.steps() == len(first)
    other = read(model, TEXTS, batch_size=4, micro_batch=3, seed=6)
    assert epoch(other) != first


def test_batches_are_of_similar_length(model: Any) -> None:
    def filled(source: data.LanguageData) -> int:
        count = 0
        while step := source.batch(0):
            count += sum(micro_batch.tokens.size for micro_batch in step.micro_batches)
        return count

    assert filled(read(model, TEXTS, batch_size=4)) < filled(
        read(model, TEXTS, batch_size=4, shuffle=False)
    )


def test_a_place_is_gone_back_to(model: Any) -> None:
    source = read(model, TEXTS, batch_size=4)
    expected = [*epoch(source), *epoch(source)]
    again = read(model, TEXTS, batch_size=4)
    for _ in range(7):  # one of them ends the first epoch
        again.batch(0)
    place = json.loads(json.dumps(again.state()))
    assert place["epoch"], place["index"] == (1, 1)
    resumed = read(model, TEXTS, batch_size=4)
    resumed.set_state(place)
    assert epoch(resumed) == expected[6:]
    with pytest.raises(BadFormat, match="other data"):
        read(model, TEXTS[1:], batch_size=4).set_state(place)
    with pytest.raises(BadFormat, match="other data"):
        read(model, TEXTS, batch_size=3).set_state(place)
    for bad in ({"index": 99}, {"epoch": -1}, {"index": "1"}, {"epoch": True}):
        with pytest.raises(BadFormat, match="an epoch has 5 batches"):
            resumed.set_state({**place, **bad})


class _Clock:
    """A day later each time that it is read."""

    days = 0

    @classmethod
    def now(cls) -> datetime:
        cls.days += 1
        return datetime(2024, 2, 1) + timedelta(days=cls.days)


def test_a_place_is_gone_back_to_on_another_day(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a chat template writes the date; another template makes other data."""
    monkeypatch.setattr(callables, "datetime", _Clock)
    dated = copy.copy(model)
    source = "{{ strftime_now('%d') }}{{ messages[0].content }}"
    dated.chat_template = ChatTemplate({"default": source}, {}, thinking=False)
    first, other = read(dated, [CHAT]), read(dated, [CHAT])
    assert other.state() == first.state()
    other.set_state(first.state())
    assert epoch(other) != epoch(first)
    dated.chat_template = ChatTemplate({"default": source + "!"}, {}, thinking=False)
    for changed in (read(dated, [CHAT]), read(dated, [{**CHAT, "id": 4}])):
        with pytest.raises(BadFormat, match="other data"):
            changed.set_state(first.state())


def test_long_rows_are_cut_and_counted(model: Any) -> None:
    source = read(model, [*TEXTS, CHAT], max_seq_length=16, mask_prompt=False)
    assert source.info()["cut"] == 15
    assert source.info()["longest"] == 16
    chat = read(model, [CHAT, {"prompt": "a", "completion": "b"}], mask_prompt=True,
                max_seq_length=21)  # fmt: skip
    assert chat.info()["without_targets"] == 1
    assert chat.info()["rows"] == 1


def test_long_rows_are_refused(model: Any) -> None:
    examples = [{"text": "fox"}, TEXTS[6]]
    with pytest.raises(BadFormat, match=r"1 of 2 lines .* line 2: it has \d+ tokens, more than "):
        read(model, examples, max_seq_length=16, long_rows="refuse")


def test_packed_rows_have_the_same_targets(model: Any) -> None:
    plain = read(model, TEXTS, shuffle=False, max_seq_length=256)
    packed = read(model, TEXTS, shuffle=False, max_seq_length=256, packing=True)
    assert packed.info()["targets"] == plain.info()["targets"]
    assert packed.info()["tokens"] == plain.info()["tokens"]
    assert packed.info()["rows"] < plain.info()["rows"] / 2
    assert packed.info()["longest"] <= 256


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(2, 40), min_size=1, max_size=60))
def test_packing_loses_nothing(lengths: list[int]) -> None:
    rows = [
        Row(array("i", [100 * index + at for at in range(length)]), [(1, length)])
        for index, length in enumerate(lengths)
    ]
    packed = drain(pack(rows, 40))[0]
    assert all(len(row.tokens) <= 40 for row in packed)
    found = []
    for row in packed:
        for first, end in row.targets:
            found.append(row.tokens[first - 1 : end].tolist())
    assert sorted(found) == sorted(row.tokens.tolist() for row in rows)
    # No two of the windows would fit into one.
    rooms = sorted(len(row.tokens) for row in packed)
    assert len(rooms) < 2 or rooms[0] + rooms[1] > 40


BAD_LINES = {
    b"": "it is empty",
    b"{": "it is no JSON",
    b"[1]": "it is an array, not an object",
    b"{}": "has none of them",
    b'{"text": "a", "messages": []}': "has text and messages",
    b'{"text": 3}': "text is a number",
    b'{"text": ""}': "text is empty",
    b'{"prompt": "a"}': "completion is missing",
    b'{"prompt": "a", "completion": null}': "completion is null",
    b'{"messages": []}': "messages is no array of at least one message",
    b'{"messages": [3]}': r"messages\[0\] must be an object",
    b'{"messages": [{"role": 1}]}': r"messages\[0\].role must be",
    b'{"messages": [{"role": "user", "content": "a"}], "tools": 1}': "tools is no array",
    b'{"messages": [{"role": "user", "content": "a"}], "tools": [{}]}': "is no function",
    b'{"messages": [{"role": "user", "content": "a", "images": ["x"]}]}': "takes text only",
    b'{"messages": [{"role": "user", "content": "a", "contnet": "x"}]}': "did you mean 'content'",
    b'{"text": "\\ud800"}': "not valid Unicode",
    b'{"text": "\xff"}': "it is no JSON",
    b"[" * 400: "nested more than",
    b'{"text": ' + b"9" * 5000 + b"}": "cannot be read",
}


@pytest.mark.parametrize("line", BAD_LINES, ids=[str(line[:30]) for line in BAD_LINES])
def test_a_malformed_line_is_refused_by_number(model: Any, line: bytes) -> None:
    good = encoded(TEXTS[:2])
    raw = good + b"\n" + line + b"\n" + good + b"\n"
    with pytest.raises(
        BadFormat, match=r"^1 of 5 lines of the data cannot be trained on"
    ) as caught:
        read(model, raw)
    assert caught.value.details["line"] == 3
    with pytest.raises(BadFormat, match=BAD_LINES[line]):
        read(model, raw)


def test_all_malformed_lines_are_counted(model: Any) -> None:
    raw = b"\n".join([b"x"] * 9 + [encoded(TEXTS[:1])])
    with pytest.raises(BadFormat, match=r"9 of 10 lines .* line 5: .*; and 4 more"):
        read(model, raw)


def test_a_line_without_end_is_not_kept(monkeypatch: pytest.MonkeyPatch, model: Any) -> None:
    monkeypatch.setattr(examples, "MAX_LINE", 1000)
    long = json.dumps({"text": "a" * 5000}).encode()
    found = dict(examples.lines(encoded(TEXTS[:1]) + b"\n" + long + b"\n" + encoded(TEXTS[:1])))
    assert [len(line) > 1000 for line in found.values()] == [False, True]
    assert len(found[2]) < 1100
    with pytest.raises(BadFormat, match="line 2: it has more than 1000 bytes"):
        read(model, encoded(TEXTS[:1]) + b"\n" + long)


@pytest.mark.parametrize("raw", [b"", b"\xef\xbb\xbf"])
def test_empty_data_are_refused(model: Any, raw: bytes) -> None:
    with pytest.raises(CowMlxError, match=r"the data is empty|it is empty"):
        read(model, raw)


def test_data_without_a_target_are_refused(model: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"none of the 1 lines .* has a token to train on"):
        read(model, [CHAT], mask_prompt=True, max_seq_length=8)


def test_a_text_has_no_prompt_to_mask(model: Any) -> None:
    with pytest.raises(BadFormat, match="line 1: it is a text, which has no prompt to mask"):
        read(model, TEXTS[:1], mask_prompt=True)
    alone = {"messages": [{"role": "assistant", "content": "Hello"}]}
    with pytest.raises(BadFormat, match="no prompt before it"):
        read(model, [alone], mask_prompt=True)


def test_a_model_without_a_template_learns_texts_alone(tmp_path: pathlib.Path) -> None:
    path = tiny_models.make(tmp_path, "llama")
    settings = json.loads((path / "tokenizer_config.json").read_text())
    settings.pop("chat_template")
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    plain = load(path, lazy=True)
    assert read(plain, TEXTS[:1]).info()["rows"] == 1
    with pytest.raises(CowMlxError, match="no chat template"):
        read(plain, [CHAT])


def test_files_that_are_none_are_refused(model: Any, tmp_path: pathlib.Path) -> None:
    import os

    with pytest.raises(NotFound, match="no such file"):
        read(model, str(tmp_path / "none"))
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(InputOutput, match="no regular file"):
            read(model, str(path))
    with pytest.raises(InputOutput, match="cannot read"):
        read(model, "a\0b")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "options.batch_size is 0, must be 1 to"),
        ({"max_seq_length": 1}, "max_seq_length is 1"),
        ({"max_seq_length": 513}, "the model's context length is 512"),
        ({"long_rows": "drop"}, "must be one of"),
        ({"packing": 1}, "must be true or false"),
        ({"mask": True}, "options.mask is no option"),
    ],
)
def test_options_are_checked(model: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        read(model, TEXTS, **options)


def test_tokenizing_is_done_in_steps(model: Any) -> None:
    examples = [{"text": "The quick brown fox jumps. " * 40}] * 60
    _, steps = drain(data.read_lines(model, encoded(examples), data.DataOptions({})))
    assert len(steps) > 3


@pytest.mark.parametrize("packing", [False, True])
def test_many_rows_are_taken_in_steps(model: Any, packing: bool) -> None:
    """Also those that wait for no tokenizer: to pack, count and order them."""
    most = data.AT_ONCE
    rows = [Row(array("i", range(2 + index % 5)), [(1, 2)]) for index in range(3 * most)]
    options = data.DataOptions({"packing": packing, "max_seq_length": 8})
    if packing:
        assert len(drain(pack(rows, 8))[1]) >= 4
    source, steps = drain(data._made_of(rows, options, "", {}))
    assert len(steps) >= 3
    assert source.info()["tokens"] == sum(len(row.tokens) for row in rows)
    assert source.info()["longest"] == 6
    assert len(drain(source.prepare(0))[1]) >= 3
    assert not drain(source.prepare(0))[1]


def test_memory_is_asked_for_as_rows_become_more(
    monkeypatch: pytest.MonkeyPatch, model: Any
) -> None:
    monkeypatch.setattr(data, "_CHECKED", 1000)
    asked = []

    def require_room(size: int, what: str) -> None:
        asked.append(size)
        if size > 3000:
            raise OutOfMemory(what)

    steps = data.read_lines(model, encoded(TEXTS), data.DataOptions({}), "", require_room)
    with pytest.raises(OutOfMemory, match="the rows of the data"):
        drain(steps)
    assert asked == sorted(asked) and len(asked) > 1


def test_what_fills_up_is_no_target(model: Any) -> None:
    source = read(model, [{"text": "a"}, TEXTS[6]], batch_size=2)
    (batch,) = source.batch(0).micro_batches  # type: ignore[union-attr]
    assert batch.tokens.dtype == mx.int32
    assert batch.targets.sum().item() == source.info()["targets"]
    assert not batch.targets[:, 0].any().item()
