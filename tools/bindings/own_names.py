"""The names that bindings give the calls and arguments of C.

Messages of the library name its own calls and fields: "context_begin: top_p is 2, must be …". With
these tables each binding names what its users wrote: "Context.begin: topP is 2, must be …".

A call's name follows from C's by a rule, noun and verb: context_begin is Context.begin in Node.js
and Java, Context.Begin in Go, Context::begin in C++ and Rust. Exceptions are listed here.
"""

from __future__ import annotations

from tools.bindings import hosts
from tools.bindings.header import Header

NODE, GO, JAVA, CPP, RUST = "node", "go", "java", "cpp", "rust"
SWIFT = "swift"

# Calls that no host makes by their names, or that never fail.
UNNAMED = ("status_name", "error_message", "version", "abi_version")
# Calls that no host makes in Node.js, Go and Java.
NOT_MANAGED = ("error_details", "array_from_dlpack", "array_to_dlpack")

EXCEPTIONS = {
    NODE: {
        "runtime_start": "new Runtime",
        "runtime_stop": "Runtime.close",
        "runtime_info": "runtimeInfo",
        "memory_trim": "trimMemory",
        "model_load": "Model.loadSync",
        "model_load_async": "Model.load",
        "model_poll": "Model.load",
        "model_wake_fd": "Model.load",
        "context_create": "Model.context",
        "adapter_load": "Model.adapter",
        "context_begin_async": "Context.generate",
        "context_generate": "Context.generateText",
        "context_chat": "Context.chatEvents",
        "context_chat_async": "Context.chat",
        "context_next_event": "Context.chat",
        "array_create": "NDArray.from",
        "array_type": "NDArray.shape",
        "arrays_load": "loadArrays",
        "arrays_save": "saveArrays",
        "arrays_info": "arraysInfo",
        "operations_info": "operationsInfo",
        "training_create_for_model": "Training.forModel",
    },
    GO: {
        "runtime_start": "NewRuntime",
        "runtime_stop": "Runtime.Close",
        "runtime_info": "RuntimeInfo",
        "memory_trim": "TrimMemory",
        "model_load": "LoadModel",
        "model_load_async": "LoadModelAsync",
        "model_poll": "LoadModelAsync",
        "model_wake_fd": "LoadModelAsync",
        "model_inspect": "InspectModel",
        "context_create": "Model.NewContext",
        "adapter_load": "Model.LoadAdapter",
        "context_begin_async": "Context.Generate",
        "context_wake_fd": "Context.WakeFD",
        "context_generate": "Context.GenerateText",
        "context_chat": "Context.ChatEvents",
        "context_chat_async": "Context.Chat",
        "context_next_event": "Context.Chat",
        "media_from_pixels": "MediaFromPixels",
        "media_from_file": "MediaFromFile",
        "array_create": "FromTensor",
        "array_apply": "Apply",
        "arrays_load": "LoadArrays",
        "arrays_save": "SaveArrays",
        "arrays_info": "ArraysInfo",
        "program_create": "NewProgram",
        "program_load": "LoadProgram",
        "operations_info": "Operations",
        "training_create": "NewTraining",
        "training_create_for_model": "NewModelTraining",
    },
    JAVA: {
        "runtime_start": "new Runtime",
        "runtime_stop": "Runtime.close",
        "memory_trim": "Runtime.trimMemory",
        "model_poll": "Model.loadAsync",
        "model_wake_fd": "Model.loadAsync",
        "context_create": "Model.context",
        "adapter_load": "Model.adapter",
        "context_begin_async": "Context.generateAsync",
        "context_next": "Pieces.next",
        "context_next_event": "Context.chatAsync",
        "array_create": "NDArray.of",
        "array_type": "NDArray.shape",
        "array_wait": "NDArray.await",
        "arrays_load": "NDArray.load",
        "arrays_save": "NDArray.save",
        "arrays_info": "NDArray.infoOf",
        "program_create": "Program.of",
        "operations_info": "Runtime.operations",
        "training_create": "Training.of",
        "training_create_for_model": "Training.of",
    },
    CPP: {
        "runtime_start": "Runtime::Runtime",
        "memory_trim": "Runtime::trim_memory",
        "model_load": "Model::Model",
        "context_create": "Context::Context",
        "adapter_load": "Adapter::Adapter",
        "array_create": "Array::Array",
        "array_type": "Array::shape",
        "arrays_load": "Array::load",
        "arrays_save": "Array::save",
        "arrays_info": "Array::info",
        "program_create": "Program::Program",
        "operations_info": "Program::operations",
        "training_create": "Training::Training",
        "training_create_for_model": "Training::Training",
        "training_export": "Training::write",
    },
    RUST: {
        "memory_trim": "Runtime::memory_trim",
        "model_poll": "Loading::poll",
        "model_wake_fd": "Loading::wake_fd",
        "context_create": "Context::new",
        "array_create": "Array::new",
        "array_type": "Array::shape",
        "arrays_load": "Array::load",
        "arrays_save": "Array::save",
        "arrays_info": "Array::info",
        "program_create": "Program::new",
        "operations_info": "Program::operations",
        "training_create": "Training::of_program",
        "training_create_for_model": "Training::of_model",
    },
    SWIFT: {
        "memory_trim": "Runtime.trimMemory",
        "model_load_async": "Model.load",
        "model_poll": "Model.load",
        "model_wake_fd": "Model.load",
        "context_create": "Model.context",
        "adapter_load": "Model.adapter",
        "context_begin": "Context.generate",
        "context_begin_async": "Context.generate",
        "context_next": "Context.generate",
        "context_poll": "Context.generate",
        "context_wake_fd": "Context.generate",
        "context_chat_async": "Context.chat",
        "context_next_event": "Context.chat",
        "array_create": "NDArray.init",
        "array_type": "NDArray.shape",
        "arrays_load": "NDArray.load",
        "arrays_save": "NDArray.save",
        "arrays_info": "NDArray.info",
        "program_create": "Program.init",
        "operations_info": "Program.operations",
        "training_create": "Training.init",
        "training_create_for_model": "Training.init",
    },
}


def calls(language: str, public: Header) -> dict[str, str]:
    """The name of each call of the header in a language."""
    names = [function.name.removeprefix("cow_mlx_") for function in public.functions]
    left_out = UNNAMED if language in (CPP, RUST) else (*UNNAMED, *NOT_MANAGED)
    return {
        name: EXCEPTIONS[language].get(name) or by_rule(name, language)
        for name in names
        if not name.endswith("_params_init") and name not in left_out
    }


def by_rule(name: str, language: str) -> str:
    """A call's name as its noun and verb give it."""
    noun, _, verb = name.partition("_")
    owner = noun.capitalize()
    if language in (CPP, RUST):
        return f"{owner}::{verb}"
    if noun == "array" and language != GO:
        owner = "NDArray"
    first, *rest = ("close" if verb == "free" else verb).split("_")
    first = first.capitalize() if language == GO else first
    return f"{owner}.{first}{''.join(word.capitalize() for word in rest)}"


def fields(public: Header) -> list[str]:
    """The fields of all params that a host fills, as C names them."""
    names = {
        member.name
        for layout in hosts.layouts(public)
        if layout.name.endswith("_params")
        for member in layout.members
        if member.name != "struct_size" and not member.name.endswith(("_count", "user_data"))
    }
    return sorted(names)


def parameters(public: Header) -> list[str]:
    """The parameters of calls whose names have several words, as C names them."""
    names = {name for function in public.functions for name, _ in function.signature.params}
    return sorted(name for name in names if "_" in name and name != "user_data")
