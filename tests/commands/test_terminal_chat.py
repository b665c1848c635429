"""``python -m cowmlx chat`` as a person uses it, in a pseudo-terminal and through pipes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from PIL import Image
from support import scripted, tiny_vision_models
from support.paths import CALF, ROOT
from support.signatures import PARSE_SPECIAL
from support.terminal import Terminal

from cowmlx.commands.chat.conversation import Answer, Conversation
from cowmlx.commands.chat.screen import PlainScreen
from cowmlx.commands.chat.session import Session
from cowmlx.host.generated import declarations as abi
from cowmlx.host.library import HostError

pytest.importorskip("prompt_toolkit", reason="prompt_toolkit is not installed: make .venv/.tools")
pytest.importorskip("rich", reason="rich is not installed: make .venv/.tools")

FOX = "Tell me a story about a fox."
ASKED = "Is it raining in Oslo?"
COMMAND = [sys.executable, "-m", "cowmlx", "chat"]
GREEDY = ["--temperature", "0"]


@pytest.fixture
def environment(tmp_path) -> dict[str, str]:
    (tmp_path / "home").mkdir()
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path / "home"),
        "LANG": "C.UTF-8",
    }


@pytest.fixture
def chat(environment) -> Iterator[Callable[..., Terminal]]:
    """Begins a chat in a terminal; all end with the test."""
    begun: list[Terminal] = []

    def begin(folder: Path = CALF, *options: str) -> Terminal:
        begun.append(Terminal([*COMMAND, str(folder), *GREEDY, *options], environment))
        begun[-1].wait_for("/help helps")
        begun[-1].wait_for("> ")
        return begun[-1]

    yield begin
    for each in begun:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()


@pytest.fixture
def piped(environment) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(lines: Sequence[str] | str, *options: str, folder: Path = CALF):
        text = lines if isinstance(lines, str) else "".join(f"{line}\n" for line in lines)
        return subprocess.run(
            [*COMMAND, str(folder), *GREEDY, *options],
            input=text,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


def scripted_model(
    lib, folder: Path, answer: str, markers=(), question: str = ASKED, **settings
) -> Path:
    """A model that gives one answer to one question."""
    scripted.make(folder, scripted.CHATML, markers, **settings)
    model = lib.load(folder)
    prompt = lib.chat_prompt(model, [{"role": "user", "content": question}])
    end = lib.info(model)["end_tokens"][0]["text"]
    tokens = lib.tokenize(model, answer + end, PARSE_SPECIAL)
    lib.free_model(model)
    scripted.tell(folder, len(prompt), tokens)
    return folder


def calling_model(lib, folder: Path, name: str) -> Path:
    """A model that calls a tool."""
    call = json.dumps({"name": name, "arguments": {"q": "Oslo"}})
    return scripted_model(
        lib,
        folder,
        f"<tool_call>\n{call}\n</tool_call>",
        ["<tool_call>", "</tool_call>"],
        settings={"tool_parser_type": "json_tools"},
    )


def leave(terminal: Terminal) -> None:
    """End a chat that waits for a message."""
    terminal.wait_for("> ")
    terminal.press("/quit\r")
    assert terminal.end() == 0


def expected(lib, calf, *said: str) -> list[str]:
    """What calf answers to messages in turn."""
    context = lib.context(calf)
    messages: list[dict[str, str]] = []
    for text in said:
        messages.append({"role": "user", "content": text})
        answer = lib.chat(context, messages, max_tokens=2000).said()
        assert answer.strip(), f"nothing is said to {text!r}"
        messages.append({"role": "assistant", "content": answer})
    lib.free(context)
    return [message["content"] for message in messages[1::2]]


def test_pipes_get_plain_text(lib, calf, piped):
    done = piped([FOX, "And a duck?"])
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(f"{each}\n" for each in expected(lib, calf, FOX, "And a duck?"))


def test_a_terminal_streams_and_ends_with_ctrl_d(lib, calf, chat):
    terminal = chat()
    terminal.press(f"{FOX}\r")
    last = expected(lib, calf, FOX)[0].split()[-3:]
    terminal.wait_for(r"\s+".join(last))
    terminal.wait_for("> ")
    terminal.press("\x04")
    assert terminal.end() == 0


def test_ctrl_c_ends_the_answer_and_nothing_else(lib, tmp_path, chat):
    """The model would fill its window; what it said is part of the conversation."""
    folder = scripted_model(lib, tmp_path / "model", "rain " * 20_000, positions=50_000)
    terminal = chat(folder)
    terminal.press(f"{ASKED}\r")
    terminal.wait_for("rain rain")
    terminal.press("\x03")
    terminal.wait_for(r"\(ended\)")
    terminal.wait_for("> ")
    terminal.press("/stats\r")
    tokens = int(terminal.wait_for(r"answer: ([\d,]+) tokens")[1].replace(",", ""))
    assert 0 < tokens < 20_000
    terminal.wait_for("> ")
    terminal.press("/quit\r")
    assert terminal.end() == 0


def test_ctrl_c_at_the_prompt_gives_the_line_up(chat):
    terminal = chat()
    terminal.press("nonsense")
    terminal.wait_for("nonsense")
    terminal.press("\x03")
    terminal.wait_for("> ")
    terminal.press("/stats\r")
    terminal.wait_for("context: 0 tokens")
    terminal.wait_for("> ")
    terminal.press("\x04")
    assert terminal.end() == 0


def test_markdown_is_drawn(lib, tmp_path, chat):
    text = "# Weather\n\nIt **rains** in\n\n- Oslo\n- Bergen\n\n```python\nprint(1)\n```\n"
    terminal = chat(scripted_model(lib, tmp_path / "model", text))
    terminal.press(f"{ASKED}\r")
    terminal.wait_for("print")
    leave(terminal)
    shown = terminal.text()
    assert "**rains**" not in shown.split("It ")[-1]
    assert "• Oslo" in shown and "• Bergen" in shown


def test_what_a_terminal_would_act_on_is_left_out(lib, tmp_path, piped):
    folder = scripted_model(lib, tmp_path / "model", "a\x1b[31mb\x07c")
    assert piped([ASKED], folder=folder).stdout == "a[31mbc\n"


def test_several_lines_and_history(lib, tmp_path, chat):
    answer = "It rains there."
    folder = scripted_model(lib, tmp_path / "model", answer, question="Is it raining\nin Oslo?")
    terminal = chat(folder)
    terminal.press("Is it raining\x1b\rin Oslo?\r")
    terminal.wait_for(r"It rains there\.")
    terminal.wait_for("> ")
    terminal.press("/clear\r")
    terminal.wait_for(r"/clear\s+> ")  # the next line to type, not a redrawn one
    terminal.press("\x1b[A\x1b[A")  # up twice: the message before /clear
    terminal.wait_for(r"in Oslo\?")
    terminal.press("\x03")
    leave(terminal)


def test_thinking_is_folded_until_asked_for(lib, tmp_path, chat):
    answer = "<think>\nClouds are grey.\n</think>\n\nIt rains."
    terminal = chat(scripted_model(lib, tmp_path / "model", answer, ["<think>", "</think>"]))
    terminal.press(f"{ASKED}\r")
    terminal.wait_for("thought for")
    terminal.wait_for("It rains.")
    terminal.wait_for("> ")
    assert "Clouds" not in terminal.text()
    terminal.press("/think\r")
    terminal.wait_for("Clouds are grey.")
    leave(terminal)


def test_tools_are_shown_and_their_results_asked_for(lib, tmp_path, chat):
    terminal = chat(calling_model(lib, tmp_path / "model", "look"))
    terminal.press(f"{ASKED}\r")
    terminal.wait_for(r'look\(\{"q": ?"Oslo"\}\)')
    terminal.wait_for("what look gives: ")
    terminal.press("\x03")  # gives the message up, too
    terminal.wait_for("> ")
    terminal.press("/retry\r")
    terminal.wait_for("no message to answer")
    leave(terminal)


def test_a_reader_that_goes_ends_the_chat(environment):
    chat = subprocess.Popen(
        [*COMMAND, str(CALF), *GREEDY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    chat.stdout.close()
    _, told = chat.communicate(f"{FOX}\n{FOX}\n".encode(), timeout=120)
    assert (chat.returncode, told) == (1, b"")


def test_saved_conversations_go_on_where_they_were(lib, calf, piped, tmp_path):
    saved = str(tmp_path / "fox.json")
    first = piped([FOX, f"/save {saved}"], "--commands")
    assert first.stdout.endswith(f"saved as {saved}\n"), first.stderr
    told = json.loads(Path(saved).read_text())["messages"]
    assert [each["role"] for each in told] == ["user", "assistant"]
    lines = [f"/load {saved}", "And a duck?", "/stats"]
    then = piped(lines, "--commands").stdout.splitlines()
    assert then[0] == "2 messages"
    assert then[1] == expected(lib, calf, FOX, "And a duck?")[1]
    kept = int(then[3].split(" of them kept")[0].split()[-1].replace(",", ""))
    assert kept > 50, "the saved context was not used"


def test_files_may_be_in_the_home_folder(piped, environment):
    assert piped([FOX, "/save ~/fox.json"], "--commands").returncode == 0
    saved = Path(environment["HOME"], "fox.json")
    assert len(json.loads(saved.read_text())["messages"]) == 2
    assert piped(["/load ~/fox.json"], "--commands").stdout == "2 messages\n"


def test_a_conversation_that_cannot_be_saved_leaves_all_files(piped, tmp_path):
    (tmp_path / "talks" / "folder").mkdir(parents=True)
    (tmp_path / "talks" / "folder.cache").write_text("old")
    done = piped([FOX, f"/save {tmp_path}/talks/folder"], "--commands")
    assert done.returncode == 1 and "cannot be written" in done.stderr
    assert (tmp_path / "talks" / "folder.cache").read_text() == "old"
    assert sorted(os.listdir(tmp_path / "talks")) == ["folder", "folder.cache"]


@pytest.mark.parametrize(("status", "kept"), [(abi.ECONTEXT, True), (abi.EUNSUPPORTED, False)])
def test_images_of_a_failed_message_wait_for_the_next(monkeypatch, status, kept):
    def fail(*_: object) -> None:
        raise HostError(status, "NAME", "it failed")

    monkeypatch.setattr(Conversation, "answer", fail)
    conversation = Conversation(None, 0, {}, {}, [], images=["data:;base64,AA"])
    session = Session(conversation, PlainScreen(), None, interactive=False, commands=False)
    with pytest.raises(HostError):
        session.ask("What?")
    assert conversation.messages == []
    assert conversation.images == (["data:;base64,AA"] if kept else [])


def test_an_image_goes_with_the_next_message(lib, calf, piped, tmp_path):
    folder = tiny_vision_models.make(tmp_path / "vision")
    picture, saved = tmp_path / "a picture.png", str(tmp_path / "talk.json")
    Image.new("RGB", (6, 4), "red").save(picture)
    done = piped([f"/image {picture}", "What?", f"/save {saved}"], "--commands", folder=folder)
    assert "an image of 6 x 4 with the next message" in done.stdout, done.stderr
    asked, answered = json.loads(Path(saved).read_text())["messages"]
    content = asked["content"]
    assert [part["type"] for part in content] == ["image_url", "text"]
    assert content[1]["text"] == "What?"
    then = piped([f"/load {saved}", "/retry"], "--commands", folder=folder)
    assert "the context is full" in then.stderr  # which the random model's answer has filled
    assert answered["content"][:100] in then.stdout
    dropped = piped([f"/image {picture}", "/image", "What?", f"/save {saved}"], "--commands")
    assert "no image waits" in dropped.stdout, dropped.stderr
    assert json.loads(Path(saved).read_text())["messages"][0]["content"] == "What?"
    wrong = piped([f"/image {saved}", "What?"], "--commands", folder=folder)
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "PNG" in wrong.stderr
    blind = piped([f"/image {picture}", "What?"], "--commands")
    assert blind.returncode == 4
    assert "takes text only" in blind.stderr


def test_a_fork_leaves_the_first_conversation_as_it_is(lib, calf, piped):
    lines = [FOX, "/fork", "And a duck?", "/switch 1", "And a cow?"]
    told = piped(lines, "--commands").stdout.splitlines()
    assert told[2] == expected(lib, calf, FOX, "And a duck?")[1]
    assert told[4] == expected(lib, calf, FOX, "And a cow?")[1]


def test_what_the_system_says_comes_first(lib, calf, piped):
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": FOX}]
    context = lib.context(calf)
    answer = lib.chat(context, messages, max_tokens=2000).said()
    lib.free(context)
    assert piped(["/system Be kind.", FOX], "--commands").stdout == f"{answer}\n"
    assert piped([FOX], "--system", "Be kind.").stdout == f"{answer}\n"


WRONG = [
    ("/nope", "there is no /nope"),
    ("/swich 1", "did you mean /switch?"),
    ("/switch 2", "a number from 1 to 1"),
    ("/save", "which file?"),
    ("/save /no/such/folder/x", "cannot be written"),
    ("/load /no/such/file", "cannot be read"),
    (f"/load {CALF}/config.json", "holds no conversation"),
    ("/retry", "no message to answer"),
]


def test_a_wrong_command_is_told_and_the_chat_goes_on(chat):
    terminal = chat()
    for line, problem in WRONG:
        terminal.press(f"{line}\r")
        terminal.wait_for(problem.replace("?", r"\?"))
        terminal.wait_for("> ")
    terminal.press("\x04")
    assert terminal.end() == 0


def test_a_wrong_command_ends_a_pipe(piped):
    done = piped(["/load /no/such/file", FOX], "--commands")
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot be read" in done.stderr


def test_a_line_of_a_pipe_is_a_message_whatever_it_begins_with(lib, calf, piped):
    said = [FOX, "/quit", "And a duck?"]
    done = piped(said)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "".join(f"{answer}\n" for answer in expected(lib, calf, *said))


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ("", ["-p", FOX], FOX),
        ("Tell me a story\n/quit\nabout a fox.\n", ["-"], "Tell me a story\n/quit\nabout a fox."),
        ("a fox\n", ["-", "-p", "Tell me about this:"], "Tell me about this:\n\na fox"),
    ],
    ids=["prompt", "whole", "both"],
)
def test_one_message_is_answered_whole(lib, calf, piped, given, options, message):
    done = piped(given, *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == expected(lib, calf, message)[0] + "\n"


def test_events_are_a_json_object_a_line(lib, calf, piped):
    done = piped([FOX, "And a duck?"], "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    answers = "".join(event.get("text", "\0") for event in events).split("\0")
    assert answers == [*expected(lib, calf, FOX, "And a duck?"), ""]
    ends = [event for event in events if event["event"] == "end"]
    assert [end["finish"] for end in ends] == ["stop", "stop"]
    assert ends[1]["reused_tokens"] > ends[0]["prompt_tokens"] > 0 < ends[0]["generated_tokens"]


def test_calls_have_ids_that_templates_take_and_keep_the_reasoning(lib, tmp_path, piped):
    call = '<tool_call>{"name": "look", "arguments": {"q": "Oslo"}}</tool_call>'
    folder = scripted_model(
        lib,
        tmp_path / "model",
        f"<think>Hm.</think>{call}{call}",
        ["<think>", "</think>", "<tool_call>", "</tool_call>"],
        settings={"tool_parser_type": "json_tools"},
    )
    saved = tmp_path / "saved"
    # The second answer is the end of the first one, and so calls once.
    lines = [ASKED, "grey", "blue", "red", f"/save {saved}"]
    done = piped(lines, "--commands", folder=folder)
    assert done.returncode == 0, done.stderr
    messages = json.loads(saved.read_text())["messages"]
    assert messages[1]["reasoning_content"] == "Hm."
    calls = [call["id"] for message in messages for call in message.get("tool_calls", [])]
    assert calls == ["000000000", "000000001", "000000002"]
    results = [message for message in messages if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in results] == calls


def test_results_have_the_ids_of_their_calls():
    calls = [("look", {"q": "Oslo"}), ("look", {"q": "Rome"})]
    messages = [Answer(calls=calls).message(3)]
    conversation = Conversation(None, 0, {}, {}, messages)
    conversation.add_result("look", "grey", 0)
    conversation.add_result("look", "blue", 1)
    ids = ["000000003", "000000004"]
    assert [one["id"] for one in messages[0]["tool_calls"]] == ids
    assert [message["tool_call_id"] for message in messages[1:]] == ids


def test_names_of_tools_are_harmless_in_questions(lib, tmp_path, chat):
    terminal = chat(calling_model(lib, tmp_path / "model", "lo\x1b]0;title\x07\nok"))
    terminal.press(f"{ASKED}\r")
    terminal.wait_for(r"what lo\]0;title ok gives: ")
    terminal.press("\x03")
    leave(terminal)
    assert "\x1b]0;title" not in terminal.raw


def test_an_input_that_ends_before_a_result_is_an_error(lib, tmp_path, piped):
    done = piped([ASKED], folder=calling_model(lib, tmp_path / "model", "look"))
    assert done.returncode == 1
    assert done.stderr == "cowmlx chat: the input ended before the result of look\n"


def test_a_line_of_a_pipe_that_ends_with_a_backslash_is_a_message(lib, calf, piped):
    done = piped([f"{FOX}\\"])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == expected(lib, calf, f"{FOX}\\")[0] + "\n"


def test_calls_of_tools_are_events_and_end_one_message(lib, tmp_path, piped):
    folder = calling_model(lib, tmp_path / "model", "look")
    done = piped("", "-p", ASKED, "--json", folder=folder)
    assert done.returncode == 0, done.stderr
    event = json.loads(done.stdout.splitlines()[0])
    assert event == {"event": "tool_call", "name": "look", "arguments": {"q": "Oslo"}}


@pytest.fixture
def wrong_tools(tmp_path) -> Callable[[str], str]:
    def write(text: str) -> str:
        (tmp_path / "tools.json").write_text(text)
        return str(tmp_path / "tools.json")

    return write


@pytest.mark.parametrize(
    ("options", "status", "problem"),
    [
        (["--tools", "/no/such/file"], 2, "--tools /no/such/file: No such file"),
        (["--tools", "{"], 2, "tools.json: "),
        (["--tools", "{}"], 2, "tools must be an array"),
        (["--tools", '[{"name": "x"}]'], 2, "tools[0] is no function"),
        (["--temperature", "-1"], 2, "temperature is -1"),
        (["--temperature", "warm"], 2, "--temperature"),
        (["--top-k", "4294967297"], 2, "top_k is 4294967297, must be within -2147483648 to"),
        (["--draft-tokens", "-1"], 2, "draft_tokens is -1"),
        (["--prompt-cache", "x", "--prompt-cache-bytes", "-1"], 2, "prompt_cache_bytes is -1"),
        (["--prompt-cache-bytes", "9"], 2, "--prompt-cache-bytes needs --prompt-cache FOLDER"),
        (["--adapter", "/no/such/folder"], 1, "/no/such/folder"),
        (["-p", " "], 2, "the message is empty"),
    ],
    ids=str,
)
def test_errors_go_to_the_error_stream_with_a_status(piped, wrong_tools, options, status, problem):
    if options[0] == "--tools" and not options[1].startswith("/"):
        options = ["--tools", wrong_tools(options[1])]
    done = piped([FOX], *options)
    assert (done.returncode, done.stdout) == (status, "")
    assert problem in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(("options", "files"), [([], 1), (["--prompt-cache-bytes", "1000"], 0)])
def test_a_folder_of_prompts_takes_the_bytes_that_it_may(piped, tmp_path, options, files):
    said = "Tell me a story about a fox. " * 50
    done = piped([said], "--prompt-cache", str(tmp_path / "prompts"), *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list((tmp_path / "prompts").iterdir())) == files


def test_programs_are_told_errors_as_events_too(piped):
    done = piped([FOX], "--json", "--temperature", "-3")
    event = json.loads(done.stdout)
    assert (done.returncode, event["event"], event["status"]) == (2, "error", "EINVAL")
    assert event["message"] in done.stderr


@pytest.mark.parametrize(
    ("options", "status", "name", "problem"),
    [
        (["--tools", "/no/file: x"], 2, "EINVAL", "--tools /no/file: x: No such file or directory"),
        (["--commands"], 1, "ECHAT", "/no/file: x cannot be read: "),
    ],
    ids=["option", "command"],
)
def test_own_errors_of_the_chat_are_events_with_whole_messages(
    piped, options, status, name, problem
):
    done = piped(["/load /no/file: x"], "--json", *options)
    [event] = map(json.loads, done.stdout.splitlines())
    assert (done.returncode, event["event"], event["status"]) == (status, "error", name)
    assert event["message"].startswith(problem)
    assert done.stderr == f"cowmlx chat: {event['message']}\n"


def test_characters_that_the_output_lacks_are_escaped(lib, tmp_path, environment):
    folder = scripted_model(lib, tmp_path / "model", "caf\xe9 \u2192 Oslo")
    done = subprocess.run(
        [*COMMAND, str(folder), *GREEDY, "-p", ASKED],
        env={**environment, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, b"caf\xe9 \\u2192 Oslo\n"), done.stderr


@pytest.mark.parametrize("given", [b"\xff\xfe fox\n"])
@pytest.mark.parametrize("options", [[], ["-"]])
def test_what_is_no_text_is_told(environment, given, options):
    done = subprocess.run(
        [*COMMAND, str(CALF), *options], input=given, env=environment, capture_output=True
    )
    assert done.returncode == 2
    assert b"not UTF-8" in done.stderr and b"Traceback" not in done.stderr


def test_a_conversation_that_does_not_fit_has_a_status_of_its_own(lib, tmp_path, piped):
    folder = scripted_model(lib, tmp_path / "model", "rain " * 500, positions=200)
    done = piped([ASKED], folder=folder)
    assert done.returncode == 3
    assert done.stdout.startswith("rain rain")
    assert done.stderr == "cowmlx chat: the context is full, and the answer is cut off\n"
    done = piped([ASKED * 300], folder=folder)
    assert (done.returncode, done.stdout) == (3, "")
    assert "ECONTEXT" in done.stderr


def test_a_model_without_a_template_has_a_status_of_its_own(tmp_path, piped):
    folder = shutil.copytree(CALF, tmp_path / "model")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    del settings["chat_template"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    done = piped([FOX], folder=folder)
    assert (done.returncode, done.stdout) == (4, "")
    assert "no chat template" in done.stderr


def test_ctrl_c_ends_a_pipe_with_its_status(lib, tmp_path, environment):
    folder = scripted_model(lib, tmp_path / "model", "rain " * 20_000, positions=50_000)
    chat = subprocess.Popen(
        [*COMMAND, str(folder), *GREEDY, "-p", ASKED],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    assert chat.stdout.read(9) == b"rain rain"
    chat.send_signal(signal.SIGINT)
    _, told = chat.communicate(timeout=60)
    assert (chat.returncode, told) == (130, b"")


# Ctrl-C while the model loads, at the first that the chat hears of it.
INTERRUPTED = (
    "import signal, sys\n"
    "from cowmlx.__main__ import main\n"
    "from cowmlx.commands import chat\n"
    "def show(text):\n"
    "    if '%' in text: signal.raise_signal(signal.SIGINT)\n"
    "chat.show_progress = show\n"
    "sys.exit(main())"
)


def test_ctrl_c_ends_the_loading(environment):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, "chat", str(CALF), "-p", FOX],
        capture_output=True,
        env=environment,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


# The plain chat: without prompt_toolkit and rich.
PLAIN = (
    "import sys; sys.modules['rich'] = sys.modules['prompt_toolkit'] = None\n"
    "from cowmlx.__main__ import main; sys.exit(main())"
)


@pytest.fixture
def plain(environment) -> Iterator[Terminal]:
    """A chat with calf in a terminal, edited with readline."""
    pytest.importorskip("readline", reason="this Python was built without readline")
    command = [sys.executable, "-c", PLAIN, "chat", str(CALF), *GREEDY]
    terminal = Terminal(command, environment)
    yield terminal
    if terminal.process.poll() is None:
        terminal.process.kill()
        terminal.process.wait()


def test_the_plain_chat_edits_and_completes(lib, calf, plain, tmp_path):
    plain.wait_for("pip install prompt_toolkit rich")
    plain.wait_for("> ")
    plain.press("/stats\r")
    plain.wait_for("context: 0 tokens")
    plain.wait_for("> ")
    plain.press("\x1b[A")  # up
    plain.wait_for("/stats")
    plain.press("\x15")  # takes the line away
    plain.press("/sw\t2\r")
    plain.wait_for("a number from 1 to 1")
    plain.wait_for("> ")
    (tmp_path / "conversation.json").write_text("{}")
    plain.press(f"/load {tmp_path}/conv\t\r")
    plain.wait_for("conversation.json holds no conversation")
    plain.wait_for("> ")
    plain.press("\x04")
    assert plain.end() == 0
    assert "^[[A" not in plain.text()


def test_the_plain_chat_ends_its_lines(plain):
    plain.wait_for("> ")
    plain.press("nonsense")
    plain.wait_for("nonsense")
    plain.interrupt("\n> ")
    plain.press("\x04")
    plain.wait_for("\n")
    assert plain.end() == 0
    assert plain.raw.endswith("\n")


def test_tab_completes_commands(chat):
    terminal = chat()
    terminal.press("/sta\t")
    terminal.wait_for("/stats")
    terminal.press("\r")
    terminal.wait_for("context: 0 tokens")
    leave(terminal)


def test_loading_is_shown_on_terminals_and_errors_stand_alone(environment, tmp_path):
    folder = shutil.copytree(CALF, tmp_path / "model")
    (folder / "model.safetensors").write_bytes(b"none")
    terminal = Terminal([*COMMAND, str(folder)], environment)
    terminal.wait_for("loading ")
    terminal.wait_for("cowmlx chat: EFORMAT")
    assert terminal.end() == 1
    assert terminal.raw.split("cowmlx chat")[0].endswith("\r\x1b[K")


def test_mirostat_takes_the_place_of_recommended_filters(piped, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(CALF, folder)
    recommended = {"do_sample": True, "temperature": 0.7, "top_p": 0.9, "top_k": 20}
    (folder / "generation_config.json").write_text(json.dumps(recommended))
    options = ["--temperature", "0.7", "--mirostat", "2", "--dry-multiplier", "0.8"]
    done = piped([FOX], *options, folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "exclude" not in done.stdout
    assert len(done.stdout) > 20


def test_no_model_is_told(piped, tmp_path):
    done = piped([FOX], folder=tmp_path / "none")
    assert done.returncode == 1
    assert done.stderr.startswith("cowmlx chat: ") and "none" in done.stderr
