"""The names that bindings for managed languages give the calls and arguments of C.

Messages of the library name its own calls and fields: "context_begin: top_p is 2, must be …". With
these tables each binding names what its users wrote: "Context.begin: topP is 2, must be …".
"""

from __future__ import annotations

from tools.bindings import hosts
from tools.bindings.header import Header

# What each call is in Node.js, Go and Java; "" where no host makes it.
CALLS: dict[str, tuple[str, str, str]] = {
    "runtime_start": ("new Runtime", "NewRuntime", "new Runtime"),
    "runtime_stop": ("Runtime.close", "Runtime.Close", "Runtime.close"),
    "runtime_info": ("runtimeInfo", "RuntimeInfo", "Runtime.info"),
    "memory_trim": ("trimMemory", "TrimMemory", "Runtime.trimMemory"),
    "error_details": ("", "", ""),
    "model_load": ("Model.loadSync", "LoadModel", "Model.load"),
    "model_load_async": ("Model.load", "LoadModelAsync", "Model.loadAsync"),
    "model_poll": ("Model.load", "LoadModelAsync", "Model.loadAsync"),
    "model_wake_fd": ("Model.load", "LoadModelAsync", "Model.loadAsync"),
    "model_free": ("Model.close", "Model.Close", "Model.close"),
    "model_inspect": ("Model.inspect", "InspectModel", "Model.inspect"),
    "model_info": ("Model.info", "Model.Info", "Model.info"),
    "model_tokenize": ("Model.tokenize", "Model.Tokenize", "Model.tokenize"),
    "model_detokenize": ("Model.detokenize", "Model.Detokenize", "Model.detokenize"),
    "model_is_end": ("Model.isEnd", "Model.IsEnd", "Model.isEnd"),
    "model_chat_prompt": ("Model.chatPrompt", "Model.ChatPrompt", "Model.chatPrompt"),
    "context_create": ("Model.context", "Model.NewContext", "Model.context"),
    "context_free": ("Context.close", "Context.Close", "Context.close"),
    "context_fork": ("Context.fork", "Context.Fork", "Context.fork"),
    "context_reset": ("Context.reset", "Context.Reset", "Context.reset"),
    "context_tokens": ("Context.tokens", "Context.Tokens", "Context.tokens"),
    "context_trim_end": ("Context.trimEnd", "Context.TrimEnd", "Context.trimEnd"),
    "context_trim_front": ("Context.trimFront", "Context.TrimFront", "Context.trimFront"),
    "context_checkpoint": ("Context.checkpoint", "Context.Checkpoint", "Context.checkpoint"),
    "context_rewind": ("Context.rewind", "Context.Rewind", "Context.rewind"),
    "checkpoint_free": ("Checkpoint.close", "Checkpoint.Close", "Checkpoint.close"),
    "context_save": ("Context.save", "Context.Save", "Context.save"),
    "context_load": ("Context.load", "Context.Load", "Context.load"),
    "context_info": ("Context.info", "Context.Info", "Context.info"),
    "adapter_load": ("Model.adapter", "Model.LoadAdapter", "Model.adapter"),
    "adapter_free": ("Adapter.close", "Adapter.Close", "Adapter.close"),
    "context_set_adapter": ("Context.setAdapter", "Context.SetAdapter", "Context.setAdapter"),
    "context_begin": ("Context.begin", "Context.Begin", "Context.begin"),
    "context_begin_async": ("Context.generate", "Context.Generate", "Context.generateAsync"),
    "context_next": ("Context.next", "Context.Next", "Pieces.next"),
    "context_poll": ("Context.poll", "Context.Poll", "Context.poll"),
    "context_wake_fd": ("Context.wakeFd", "Context.WakeFD", "Context.wakeFd"),
    "context_generate": ("Context.generateText", "Context.GenerateText", "Context.generate"),
    "context_cancel": ("Context.cancel", "Context.Cancel", "Context.cancel"),
    "context_logprobs": ("Context.logprobs", "Context.Logprobs", "Context.logprobs"),
    "context_logits": ("Context.logits", "Context.Logits", "Context.logits"),
    "context_stats": ("Context.stats", "Context.Stats", "Context.stats"),
    "context_chat": ("Context.chatEvents", "Context.ChatEvents", "Context.chat"),
    "context_chat_async": ("Context.chat", "Context.Chat", "Context.chatAsync"),
    "context_next_event": ("Context.chat", "Context.Chat", "Context.chatAsync"),
    "model_embed": ("Model.embed", "Model.Embed", "Model.embed"),
    "model_rank": ("Model.rank", "Model.Rank", "Model.rank"),
    "array_create": ("NDArray.from", "FromTensor", "NDArray.of"),
    "array_read": ("NDArray.read", "Array.Read", "NDArray.read"),
    "array_type": ("NDArray.shape", "Array.Type", "NDArray.shape"),
    "array_view": ("NDArray.view", "Array.View", "NDArray.view"),
    "array_wait": ("NDArray.wait", "Array.Wait", "NDArray.await"),
    "array_apply": ("NDArray.apply", "Apply", "NDArray.apply"),
    "array_free": ("NDArray.close", "Array.Close", "NDArray.close"),
    "array_from_dlpack": ("", "", ""),
    "array_to_dlpack": ("", "", ""),
    "arrays_load": ("loadArrays", "LoadArrays", "NDArray.load"),
    "arrays_save": ("saveArrays", "SaveArrays", "NDArray.save"),
    "arrays_info": ("arraysInfo", "ArraysInfo", "NDArray.infoOf"),
    "program_create": ("Program.create", "NewProgram", "Program.of"),
    "program_derive": ("Program.derive", "Program.Derive", "Program.derive"),
    "program_run": ("Program.run", "Program.Run", "Program.run"),
    "program_cancel": ("Program.cancel", "Program.Cancel", "Program.cancel"),
    "program_info": ("Program.info", "Program.Info", "Program.info"),
    "program_free": ("Program.close", "Program.Close", "Program.close"),
    "operations_info": ("operationsInfo", "Operations", "Runtime.operations"),
    "training_create": ("Training.create", "NewTraining", "Training.of"),
    "training_create_for_model": ("Training.forModel", "NewModelTraining", "Training.of"),
    "training_step": ("Training.step", "Training.Step", "Training.step"),
    "training_fit": ("Training.fit", "Training.Fit", "Training.fit"),
    "training_evaluate": ("Training.evaluate", "Training.Evaluate", "Training.evaluate"),
    "training_parameter": ("Training.parameter", "Training.Parameter", "Training.parameter"),
    "training_info": ("Training.info", "Training.Info", "Training.info"),
    "training_save": ("Training.save", "Training.Save", "Training.save"),
    "training_load": ("Training.load", "Training.Load", "Training.load"),
    "training_adapter": ("Training.adapter", "Training.Adapter", "Training.adapter"),
    "training_export": ("Training.export", "Training.Export", "Training.export"),
    "training_cancel": ("Training.cancel", "Training.Cancel", "Training.cancel"),
    "training_free": ("Training.close", "Training.Close", "Training.close"),
}
NODE, GO, JAVA = range(3)


def calls(language: int, public: Header) -> dict[str, str]:
    """The name of each call of the header in a language."""
    known = {each.name.removeprefix("cow_mlx_") for each in public.functions}
    return {name: own[language] for name, own in CALLS.items() if own[language] and name in known}


def fields(public: Header) -> list[str]:
    """The fields of all params that a host fills, as C names them."""
    found = {
        each.name
        for layout in hosts.layouts(public)
        if layout.name.endswith("_params")
        for each in layout.members
        if each.name != "struct_size" and not each.name.endswith(("_count", "user_data"))
    }
    return sorted(found)


def parameters(public: Header) -> list[str]:
    """The parameters of calls whose names have several words, as C names them."""
    found = {name for each in public.functions for name, _ in each.signature.params}
    return sorted(name for name in found if "_" in name and name != "user_data")
