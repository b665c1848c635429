"""Takes events of a chat, and reads their texts after the context was freed.

argv[1] is the model's folder. Prints the texts, and what was read of them while they lay there.
"""

import json
import pathlib
import sys
from ctypes import byref, c_void_p, sizeof, string_at

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

from support import signatures
from support.library import Library

MESSAGES = json.dumps([{"role": "user", "content": "Tell me a story."}]).encode()

lib = Library()
lib.start()
context = lib.context(lib.load(sys.argv[1]))
lib.check(lib.c.cow_mlx_context_chat_async(context, MESSAGES, len(MESSAGES), None, None))
event = signatures.cow_mlx_event()
event.struct_size = sizeof(event)
lib.check(lib.c.cow_mlx_context_next_event(context, byref(event)))
place = c_void_p.from_buffer(event, signatures.cow_mlx_event.text.offset).value
before = string_at(place, event.length + 1)
lib.free(context)
print(repr(before), repr(string_at(place, event.length + 1)), sep="\n")
