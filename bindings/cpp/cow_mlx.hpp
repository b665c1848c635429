/*
 * libcowmlx for C++17: cow_mlx.h with objects that free themselves, exceptions and ranges.
 * Copyright (c) 2026 the libcowmlx authors. MIT licence.
 *
 *     cowmlx::Runtime runtime;
 *     cowmlx::Model model("models/calf");
 *     cowmlx::Context context(model);
 *     auto tokens = model.chat_prompt({{"user", "What is 3 + 4?"}});
 *     for (const cowmlx::Piece& piece : context.generate(tokens)) std::cout << piece.text;
 *
 * cow_mlx.h is the manual: each function here calls the one of its name there, and means the same.
 * What differs:
 *
 *  1. A call that fails throws cowmlx::Error, which has the status and the message; a call that was
 *     cancelled throws cowmlx::Canceled, which is one too. That a range of pieces was cancelled is
 *     no error: the range ends, and its finish() gives the reason.
 *  2. Runtime, Model, Context, Checkpoint, Adapter, Media, Array, Program and Training own a handle
 *     (Runtime: a start) and free it. They can be moved, not copied. One that was moved from holds
 *     handle 0, which every call refuses.
 *  3. Text is std::string or std::string_view and may hold NUL bytes. Paths, options, grammars and
 *     stop texts may not: one that does is COW_MLX_EINVAL.
 *  4. Callbacks are std::function, and run on the thread of the call. Returning false cancels it;
 *     an exception cancels it too, and comes out of the call, whatever else that would have
 *     thrown. The log function cancels nothing: what it throws is dropped.
 *  5. What the C header has as JSON can be written here: conversations as Message, programs with
 *     ProgramBuilder and the operations of cowmlx::op.
 *
 * All objects may be used from any thread, as their handles may; a ProgramBuilder with its values
 * by one at a time. Context::cancel() is the one call to make while another thread is inside a call
 * of the same context.
 *
 * This header includes the others, a noun each:
 *
 *   cow_mlx/base.hpp             Versions, errors, handles.
 *   cow_mlx/methods.hpp          Methods of models, contexts, programs and trainings.
 *   cow_mlx/names.hpp            Names of calls, for errors.
 *   cow_mlx/params.hpp           Fields of params.
 *   cow_mlx/callbacks.hpp        What is called while a call lasts.
 *   cow_mlx/runtime.hpp          The runtime: its start and its end.
 *   cow_mlx/model.hpp            Models and adapters: loading, tokenizing, embedding, ranking.
 *   cow_mlx/media.hpp            Images.
 *   cow_mlx/generation.hpp       Generations: how they are asked for, and their pieces.
 *   cow_mlx/context.hpp          Contexts: sequences of tokens with their caches.
 *   cow_mlx/json.hpp             Texts and conversations as JSON.
 *   cow_mlx/element.hpp          The types of elements, and numbers beside arrays.
 *   cow_mlx/array.hpp            Arrays of numbers.
 *   cow_mlx/array_operators.hpp  Operators between arrays, and with numbers.
 *   cow_mlx/program.hpp          Programs: computations on arrays.
 *   cow_mlx/value.hpp            Values of programs, and operators between them.
 *   cow_mlx/program_builder.hpp  Programs as C++ writes them.
 *   cow_mlx/training.hpp         Trainings of programs and language models.
 *   cow_mlx/operations.hpp       The operations of programs, a function each.
 */
#ifndef COW_MLX_HPP
#define COW_MLX_HPP

#if __cplusplus < 201703L
#error "cow_mlx.hpp needs C++17"
#endif

#include "cow_mlx/base.hpp"
#include "cow_mlx/runtime.hpp"
#include "cow_mlx/media.hpp"
#include "cow_mlx/model.hpp"
#include "cow_mlx/context.hpp"
#include "cow_mlx/generation.hpp"
#include "cow_mlx/array.hpp"
#include "cow_mlx/array_operators.hpp"
#include "cow_mlx/program.hpp"
#include "cow_mlx/program_builder.hpp"
#include "cow_mlx/operations.hpp"
#include "cow_mlx/training.hpp"

#endif /* COW_MLX_HPP */
