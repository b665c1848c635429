/* What cow_mlx.hpp adds to cow_mlx.h, a scenario each: wrapper MODEL FOLDER SCENARIO */
#include <cmath>
#include <cow_mlx.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <type_traits>

using namespace cowmlx;

#if __cplusplus >= 202002L
#include <ranges>
static_assert(std::ranges::input_range<Pieces>);
#endif

template <typename T>
constexpr bool moves_only =
    std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_assignable_v<T> &&
    !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T>;
static_assert(moves_only<Runtime> && moves_only<Model> && moves_only<Context>);
static_assert(moves_only<Checkpoint> && moves_only<Adapter> && moves_only<Array> &&
              moves_only<Program> && moves_only<Training>);

#define EXPECT(condition)                                                  \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition); \
      std::exit(1);                                                        \
    }                                                                      \
  } while (0)

/* The status a call throws; COW_MLX_OK if it throws nothing. */
template <typename Call>
static cow_mlx_status thrown(Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT(std::strlen(error.what()) > 0);
    EXPECT(std::strlen(error.reason()) > 0 && error.details()[0] == '{');
    return error.status();
  }
  return COW_MLX_OK;
}

struct Host {
  std::string folder;
  Model model;
  Context context;
  Tokens prompt;

  Host(const char* path, const char* to)
      : folder(to),
        model(path),
        context(model),
        prompt(model.tokenize("Once upon a time", COW_MLX_ADD_SPECIAL)) {}

  std::string text(Context& from) {
    std::string text;
    from.generate(prompt, [&](std::string_view part) { return text += part, true; });
    return text;
  }
};

static GenerationParams at_most(std::size_t tokens) {
  GenerationParams params;
  params.max_tokens = tokens;
  return params;
}

static void a_range_gives_what_the_callback_gives(Host& host) {
  std::string text;
  std::size_t count = 0;
  auto pieces = host.context.generate(host.prompt);
  for (const Piece& piece : pieces) {
    text += piece.text;
    count++;
  }
  EXPECT(pieces.finish() == COW_MLX_FINISH_STOP);
  EXPECT(count > 40 && host.context.stats().generated_tokens >= count);
  EXPECT(text == host.text(host.context));
}

static void a_range_goes_on_after_break(Host& host) {
  std::string text;
  auto pieces = host.context.generate(host.prompt);
  for (const Piece& piece : pieces) {
    text += piece.text;
    if (text.size() > 20) break;
  }
  EXPECT(pieces.finish() == COW_MLX_FINISH_NONE);
  for (const Piece& piece : pieces) text += piece.text;
  EXPECT(text == host.text(host.context));
}

static void a_range_ends_when_cancelled(Host& host) {
  auto pieces = host.context.generate(host.prompt);
  for (const Piece& piece : pieces) {
    EXPECT(!piece.text.empty() || piece.token >= 0);
    std::thread([&] { host.context.cancel(); }).join();
  }
  EXPECT(pieces.finish() == COW_MLX_FINISH_CANCELED);
}

static void next_tells_the_end(Host& host) {
  Piece piece;
  host.context.begin(host.prompt, at_most(1));
  EXPECT(host.context.poll());
  EXPECT(host.context.wake_fd() >= 0);
  EXPECT(host.context.next(piece) && piece.token >= 0 && std::isnan(piece.logprob));
  while (host.context.next(piece)) EXPECT(!piece.text.empty());
  EXPECT(piece.text.empty() && piece.finish == COW_MLX_FINISH_LENGTH);
}

static void calls_return_at_once(Host& host) {
  ModelParams loading;
  std::size_t steps = 0;
  loading.progress = [&](float, std::string_view) { return ++steps > 0; };
  Model model = Model::load_async(std::getenv("MODEL"), loading);
  EXPECT(model.wake_fd() >= 0);
  while (!model.poll(10)) continue;
  EXPECT(steps > 0);
  Context context(model);
  std::size_t processed = 0;
  GenerationParams params;
  params.prompt_progress = [&](std::size_t done, std::size_t) {
    processed = done;
    return true;
  };
  context.begin_async(host.prompt, params);
  Context moved = std::move(context); /* the memory that the call uses moves along */
  params = GenerationParams();
  while (!moved.poll(0)) continue;
  EXPECT(processed == host.prompt.size());
  std::string text;
  for (Piece piece; moved.next(piece);) text += piece.text;
  EXPECT(text == host.text(host.context));
  moved.chat_async({{"user", "What is 3 + 4?"}});
  std::string said;
  Event event = {};
  while (moved.next_event(event)) said += event.text;
  EXPECT(said == "3 + 4 = 7." && event.finish == COW_MLX_FINISH_STOP);
}

static void a_function_of_the_host_changes_logits(Host& host) {
  GenerationParams params;
  params.max_tokens = 3;
  params.logits_fn = [&](const std::int32_t*, std::size_t count, float* logits,
                         std::size_t vocabulary) {
    for (std::size_t token = 0; token < vocabulary; token++) logits[token] = -INFINITY;
    logits[40 + count - host.prompt.size()] = 0;
    return true;
  };
  Pieces pieces = host.context.generate(host.prompt, params);
  params = GenerationParams();
  std::int32_t expected = 40;
  for (const Piece& piece : pieces) EXPECT(piece.token == expected++);
  EXPECT(expected == 43);
  params.logits_fn = [](const std::int32_t*, std::size_t, float*, std::size_t) -> bool { throw 7; };
  int heard = 0;
  auto call = [&](auto&& action) {
    try {
      action();
    } catch (int number) {
      heard += number;
    }
  };
  call([&] { host.context.generate(host.prompt, TextFn(), params); });
  call([&] {
    for (const Piece& piece : host.context.generate(host.prompt, params)) (void)piece;
  });
  call([&] {
    Piece piece;
    host.context.begin_async(host.prompt, params);
    while (host.context.next(piece)) continue;
  });
  EXPECT(heard == 21);
  EXPECT(!host.text(host.context).empty());
}

static void what_fails_later_is_thrown_later(Host& host) {
  Model nowhere = Model::load_async("/no/such/model");
  EXPECT(thrown([&] { nowhere.poll(); }) == COW_MLX_ENOENT);
  Piece piece;
  host.context.begin_async({});
  EXPECT(host.context.poll());
  EXPECT(thrown([&] { host.context.next(piece); }) == COW_MLX_EINVAL);
  GenerationParams params;
  params.prompt_progress = [](std::size_t, std::size_t) -> bool { throw 7; };
  host.context.begin_async(host.prompt, params);
  int heard = 0;
  try {
    while (host.context.next(piece)) continue;
  } catch (int number) {
    heard = number;
  }
  EXPECT(heard == 7);
  EXPECT(!host.text(host.context).empty());
}

static void a_callback_that_throws_cancels_and_is_heard(Host& host) {
  std::size_t calls = 0;
  std::string heard;
  auto fail = [&](std::string_view) -> bool {
    calls++;
    throw std::out_of_range("mine");
  };
  try {
    host.context.generate(host.prompt, fail);
  } catch (const std::out_of_range& error) {
    heard = error.what();
  }
  EXPECT(heard == "mine" && calls == 1);
  EXPECT(!host.text(host.context).empty());
}

static void every_callback_may_throw(Host& host) {
  ModelParams loading;
  loading.progress = [](float, std::string_view) -> bool { throw 1; };
  GenerationParams params;
  params.prompt_progress = [](std::size_t, std::size_t) -> bool { throw 2; };
  auto fail = [](const Event&) -> bool { throw 3; };
  int sum = 0;
  auto call = [&](auto&& action) {
    try {
      action();
    } catch (int number) {
      sum += number;
    }
  };
  std::string path = host.folder;
  call([&] { Model(std::getenv("MODEL"), loading); });
  call([&] { host.context.begin(host.prompt, params); });
  call([&] { host.context.chat({{"user", "What is 3 + 4?"}}, fail); });
  EXPECT(sum == 6);
}

static void a_callback_that_returns_false_cancels(Host& host) {
  bool canceled = false;
  try {
    host.context.generate(host.prompt, [](std::string_view) { return false; });
  } catch (const Canceled& error) {
    canceled = error.status() == COW_MLX_ECANCELED && error.name() == std::string("ECANCELED");
  }
  EXPECT(canceled);
}

static void errors_have_status_and_message(Host& host) {
  EXPECT(thrown([] { Model("/no/such/model"); }) == COW_MLX_ENOENT);
  EXPECT(thrown([&] { host.context.begin({}); }) == COW_MLX_EINVAL);
  EXPECT(thrown([&] { host.context.load(host.folder + "/none"); }) == COW_MLX_ENOENT);
  EXPECT(thrown([&] { host.context.logits(); }) == COW_MLX_ESTATE);
}

static void a_nul_byte_in_a_path_is_refused(Host& host) {
  using namespace std::string_literals;
  EXPECT(thrown([&] { host.context.save(host.folder + "/a\0b"s); }) == COW_MLX_EINVAL);
  EXPECT(thrown([&] { Model("models\0calf"s); }) == COW_MLX_EINVAL);
  GenerationParams params;
  params.stop = {"a\0b"s};
  EXPECT(thrown([&] { host.context.begin(host.prompt, params); }) == COW_MLX_EINVAL);
}

static void an_object_moved_from_is_refused_and_the_other_frees(Host& host) {
  Context moved = std::move(host.context);
  EXPECT(thrown([&] { host.context.tokens(); }) == COW_MLX_EHANDLE);
  EXPECT(moved.tokens().empty());
  cow_mlx_context handle = moved.handle();
  moved = Context(host.model);
  std::size_t count;
  EXPECT(cow_mlx_context_tokens(handle, nullptr, 0, &count) == COW_MLX_EHANDLE);
}

/* A handle of 0 would stand for none. */
static void what_is_moved_from_or_null_is_never_taken_for_none(Host& host) {
  Array array(std::vector<float>{1}), taken = std::move(array);
  EXPECT(thrown([&] { Array::apply("square", {&array}); }) == COW_MLX_EINVAL);
  EXPECT(thrown([&] { Array::save(host.folder + "/gone", {"a"}, {&array}); }) == COW_MLX_EINVAL);
  EXPECT(thrown([&] { Array::save(host.folder + "/gone", {"a"}, {nullptr}); }) == COW_MLX_EINVAL);
  TrainingParams params;
  params.initial = {{"w", nullptr}};
  EXPECT(thrown([&] { Training(host.model, params); }) == COW_MLX_EINVAL);
  Context moved = std::move(host.context);
  try {
    host.context.info();
    EXPECT(false);
  } catch (const Error& error) {
    EXPECT(std::string(error.what()) == "Context::info: the object has been moved from");
  }
}

static void handles_are_freed_with_their_owners(Host& host) {
  cow_mlx_context context;
  cow_mlx_model model;
  {
    Model other(std::getenv("MODEL"));
    Context fork = host.context.fork();
    model = other.handle();
    context = fork.handle();
  }
  bool end;
  EXPECT(cow_mlx_model_is_end(model, 1, &end) == COW_MLX_EHANDLE);
  EXPECT(cow_mlx_context_cancel(context) == COW_MLX_EHANDLE);
}

static void parameters_begin_with_the_defaults(Host& host) {
  cow_mlx_context_params context;
  cow_mlx_context_params_init(&context, sizeof context);
  EXPECT(ContextParams().share_prefix == context.share_prefix);
  cow_mlx_generation_params generation;
  cow_mlx_generation_params_init(&generation, sizeof generation);
  EXPECT(GenerationParams().max_tokens == generation.max_tokens);
  EXPECT(EmbedParams().batch_tokens > 0 && ModelParams().prefix_cache_bytes > 0);
  EXPECT(ModelParams().activations == COW_MLX_ACTIVATIONS_DEFAULT);
  EXPECT(RuntimeParams().log_level == COW_MLX_LOG_INFO && RuntimeParams().threads == 0);
  (void)host;
}

static void owned_parameters_reach_the_library(Host& host) {
  GenerationParams params = at_most(8);
  params.logprobs = 2;
  host.context.begin(host.prompt, params);
  Piece piece;
  EXPECT(host.context.next(piece) && piece.logprob <= 0);
  std::vector<Candidate> best = host.context.logprobs();
  EXPECT(best.size() == 2 && best[0].token == piece.token && best[0].logprob == piece.logprob);

  Context fresh(host.model);
  std::vector<std::vector<Candidate>> scored = fresh.prompt_logprobs(host.prompt, 2);
  EXPECT(scored.size() == host.prompt.size() && scored[1].size() == 3);
  EXPECT(scored[1][0].token == host.prompt[1] && std::isnan(scored[0][0].logprob));
  EXPECT(std::get<2>(fresh.perplexity("Once upon a time", 0)) == host.prompt.size() - 1);
  Tokens placed = host.prompt;
  placed[0] = -1;
  const Array row(std::vector<float>(2), {1, 2});
  EXPECT(thrown([&] { fresh.begin_embeddings(placed, row); }) == COW_MLX_EINVAL);

  params = at_most(1);
  params.bias = {{best[0].token, -INFINITY}};
  host.context.begin(host.prompt, params);
  EXPECT(host.context.next(piece) && piece.token == best[1].token);

  params = at_most(80);
  params.stop = {"never said", "named"};
  auto pieces = host.context.generate(host.prompt, params);
  for (const Piece& each : pieces) EXPECT(each.text.find("named") == std::string::npos);
  EXPECT(pieces.finish() == COW_MLX_FINISH_STOP_TEXT);

  params = at_most(40);
  params.grammar = "[0-9]{3}";
  params.grammar_kind = COW_MLX_GRAMMAR_REGEX;
  std::string digits;
  auto keep = [&](std::string_view text) { return digits += text, true; };
  host.context.generate(host.prompt, keep, params);
  EXPECT(digits.size() == 3);

  std::size_t processed = 0;
  params = at_most(0);
  params.prompt_progress = [&](std::size_t done, std::size_t) { return processed = done, true; };
  host.context.reset();
  host.context.begin(host.prompt, params);
  EXPECT(processed > 0);
  params.draft = host.context.handle();
  EXPECT(thrown([&] { host.context.begin(host.prompt, params); }) == COW_MLX_EHANDLE);
}

static void a_model_tells_and_translates(Host& host) {
  std::string text("a\0b \"c\"", 7);
  EXPECT(host.model.detokenize(host.model.tokenize(text)) == text);
  std::string all(3000, 'x');
  EXPECT(host.model.detokenize(host.model.tokenize(all)) == all);
  EXPECT(host.model.tokenize("").empty() && host.model.detokenize({}).empty());
  EXPECT(host.model.info().find("\"architecture\"") != std::string::npos);
  EXPECT(host.model.is_end(2) && !host.model.is_end(40));
  Tokens plain = host.model.chat_prompt("[{\"role\": \"user\", \"content\": \"Say \\\"x\\\"\"}]");
  EXPECT(host.model.chat_prompt({{"user", "Say \"x\""}}) == plain);
  EXPECT(host.model.chat_prompt({{"user", "Say \"x\""}}, "{\"add_generation_prompt\": false}") !=
         plain);
  EmbedParams params;
  params.pooling = COW_MLX_POOLING_LAST;
  auto rows = host.model.embed({"a cow", "a fox", "a cow"}, params);
  EXPECT(rows.size() == 3 && rows[0] != rows[1] && std::abs(rows[0][5] - rows[2][5]) < 1e-4f);
  RankParams asked;
  asked.prompt = "{query} {document}";
  asked.yes = "a", asked.no = "b";
  rows = host.model.rank("a red cow", {"a cow", "a fox", "a cow"}, asked);
  EXPECT(rows.size() == 3 && rows[0].size() == 1 && std::abs(rows[0][0] - rows[2][0]) < 1e-4f);
  EXPECT(rows[0][0] > 0 && rows[0][0] < 1 && rows[0] != rows[1]);
}

static void a_context_is_kept_cut_and_copied(Host& host) {
  host.context.begin(host.prompt, at_most(0));
  Tokens held = host.context.tokens();
  EXPECT(held == host.prompt);
  EXPECT(host.context.logits().size() == 1280);
  Checkpoint checkpoint = host.context.checkpoint();
  host.context.save(host.folder + "/saved");
  EXPECT(host.context.trim_end(1) == 1 && host.context.trim_front(1) == 1);
  EXPECT(host.context.tokens().size() == held.size() - 2);
  host.context.rewind(checkpoint);
  EXPECT(host.context.tokens() == held);
  Context fork = host.context.fork();
  host.context.reset();
  EXPECT(host.context.tokens().empty() && fork.tokens() == held);
  host.context.load(host.folder + "/saved");
  EXPECT(host.context.tokens() == held);
  EXPECT(host.context.info().find("\"tokens\": ") != std::string::npos);
  EXPECT(thrown([&] { Adapter(host.model, host.folder + "/none"); }) == COW_MLX_ENOENT);
  Runtime::trim_memory();
}

static void images_have_a_size_and_a_hash(Host&) {
  const unsigned char pixels[] = {1, 2, 3, 0, 4, 5, 6, 0};
  const Media image = Media::from_pixels(pixels, 1, 2, 3, 4);
  EXPECT(image.info().find("\"height\": 2") != std::string::npos);
  EXPECT(thrown([&] { Media::from_pixels(pixels, 1, 2, 3, 2); }) == COW_MLX_EINVAL);
  EXPECT(thrown([] { Media::from_file(""); }) == COW_MLX_EINVAL);
}

static void an_adapter_is_used_until_it_is_cleared(Host& host) {
  std::string plain = host.text(host.context);
  Adapter adapter(host.model, std::getenv("ADAPTER"));
  host.context.set_adapter(adapter);
  EXPECT(host.context.tokens().empty() && host.text(host.context) != plain);
  host.context.clear_adapter();
  EXPECT(host.text(host.context) == plain);
}

static void a_chat_gives_events(Host& host) {
  std::string said;
  std::int32_t finish = COW_MLX_FINISH_NONE;
  Stats stats = host.context.chat({{"user", "What is 3 + 4?"}}, [&](const Event& event) {
    if (event.kind == COW_MLX_EVENT_TEXT) said += event.text;
    if (event.kind == COW_MLX_EVENT_END) finish = event.finish;
    return event.name.empty();
  });
  EXPECT(said == "3 + 4 = 7." && finish == COW_MLX_FINISH_STOP);
  EXPECT(stats.generated_tokens > 0);
}

static void an_array_has_what_it_was_made_of(Host&) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  Array array(values, {2, 3});
  EXPECT(array.dtype() == Dtype::float32 && array.shape() == Shape({2, 3}) && array.size() == 6);
  EXPECT(array.values<float>() == values && array.wait(0));
  EXPECT(array.view<float>()[5] == 6 && array.view<float>().size() == 6);
  float turned[6] = {};
  const std::int64_t shape[] = {2, 3}, strides[] = {1, 2};
  cow_mlx_tensor to = {};
  to.struct_size = sizeof to;
  to.data = turned;
  to.bytes = sizeof turned;
  to.dtype = COW_MLX_FLOAT32;
  to.rank = 2;
  to.shape = shape;
  to.strides = strides;
  array.read(to);
  EXPECT(turned[0] == 1 && turned[1] == 4 && turned[2] == 2 && turned[5] == 6);
  Array copy(to);
  EXPECT(copy.values<float>() == values);
  const bool truths[] = {true, false};
  bool back[2] = {};
  Array(Span<const bool>(truths, 2), {2}).read(Span<bool>(back, 2));
  EXPECT(back[0] && !back[1]);
  EXPECT(Array(std::vector<std::complex<float>>{{1, -2}}).values<std::complex<float>>()[0].imag() ==
         -2);
  EXPECT(Array(std::vector<Float16>{{0x3c00}}).view<Float16>()[0].bits == 0x3c00);
}

static void arrays_are_saved_and_passed_on(Host& host) {
  const std::string path = host.folder + "/arrays.safetensors";
  const std::vector<float> values = {1, 2, 3};
  Array a(values), b(std::vector<std::int8_t>{-1});
  Array::save(path, {"a", "b"}, {&a, &b});
  EXPECT(Array::info(path).find("\"int8\"") != std::string::npos);
  std::vector<Array> loaded = Array::load(path, {"b", "a"});
  EXPECT(loaded[0].view<std::int8_t>()[0] == -1 && loaded[1].values<float>() == values);
  EXPECT(thrown([&] { Array::load(path, {"c"}); }) == COW_MLX_EINVAL);
  EXPECT(thrown([&] { Array::load(path, {std::string("a\0", 2)}); }) == COW_MLX_EINVAL);
  EXPECT(thrown([&] { Array::save(path, {"a"}, {}); }) == COW_MLX_EINVAL);
  EXPECT(Array::from_dlpack(a.to_dlpack()).values<float>() == values);
}

static void an_array_refuses_other_types_and_sizes(Host&) {
  Array array(std::vector<std::int32_t>{1, 2, 3});
  EXPECT(thrown([&] { array.values<float>(); }) == COW_MLX_EINVAL);
  EXPECT(thrown([&] { array.view<std::uint32_t>(); }) == COW_MLX_EINVAL);
  EXPECT(thrown([&] { Array(std::vector<float>{1, 2, 3}, {2}); }) == COW_MLX_EINVAL);
  std::int32_t two[2];
  EXPECT(thrown([&] { array.read(Span<std::int32_t>(two, 2)); }) == COW_MLX_EINVAL);
  Array moved(std::move(array));
  EXPECT(moved.size() == 3 && thrown([&] { array.size(); }) == COW_MLX_EHANDLE);
}

static void an_operation_is_applied(Host&) {
  const Array array(std::vector<float>{1, 2, 3, 4});
  EXPECT(Array::apply("add", {&array, &array})[0].values<float>()[3] == 8);
  std::vector<Array> parts =
      Array::apply("split", {&array}, R"({"indices_or_sections": 4, "axis": 0})");
  EXPECT(parts.size() == 4 && parts[2].values<float>()[0] == 3);
  EXPECT(thrown([&] { Array::apply("ad", {&array}); }) == COW_MLX_EINVAL);
}

static const char* const DOUBLE = R"({
  "inputs": [{"name": "x", "dtype": "float32", "shape": ["n"]}],
  "nodes": [{"name": "y", "op": "add", "inputs": ["x", "x"]},
            {"name": "s", "op": "sum", "inputs": ["y"]}],
  "outputs": ["y", "s"]})";

static void a_program_runs_on_memory_and_arrays(Host&) {
  const Program program(DOUBLE);
  std::vector<float> x = {1, 2, 3}, y(3), s(1);
  program.run({{x, {3}}}, {Output(y, {3}), Output(s, {})});
  EXPECT(y == std::vector<float>({2, 4, 6}) && s[0] == 12);
  const std::vector<Input> kept(1, Input(std::vector<float>(1000, 0.5f), {1000}));
  const std::vector<float> others(1000, 7);
  EXPECT(program.run(std::vector<Input>(kept), 2)[1].values<float>()[0] == 1000);
  const Array array(x);
  std::vector<Array> results = program.run({array}, 2);
  EXPECT(results[0].values<float>() == y && results[1].shape().empty());
  std::vector<Array> later = program.submit({results[0]}, 2);
  EXPECT(later[1].wait() && later[1].values<float>()[0] == 24);
  RunParams params;
  params.donate = {0};
  EXPECT(program.run({results[0]}, 2, params)[0].values<float>()[2] == 12);
  EXPECT(thrown([&] { results[0].shape(); }) == COW_MLX_EHANDLE);
  const Program gradient = program.derive(R"({"gradient": {"of": "s", "with_respect_to": ["x"]}})");
  EXPECT(gradient.run({{x, {3}}})[0].values<float>() == std::vector<float>({2, 2, 2}));
  EXPECT(program.info().find("\"n\"") != std::string::npos);
  EXPECT(program.info("{\"n\": 3}").find("output_bytes") != std::string::npos);
  EXPECT(Program::operations().find("matmul") != std::string::npos);
  program.cancel();
}

static void a_program_refuses_what_does_not_fit(Host&) {
  EXPECT(thrown([] { Program("{\"nodes\": 3}"); }) == COW_MLX_EINVAL);
  Program program(DOUBLE);
  std::vector<float> x = {1, 2, 3}, y(2), s(1);
  EXPECT(thrown([&] { program.run({{x, {3}}}, {Output(y, {2}), Output(s, {})}); }) ==
         COW_MLX_EINVAL);
  EXPECT(thrown([&] { Input(x, {2}); }) == COW_MLX_EINVAL);
  EXPECT(thrown([&] { program.run({}, 2); }) == COW_MLX_EINVAL);
  RunParams params;
  params.check_finite = true;
  const float high = 3e38f;
  EXPECT(thrown([&] { program.run({{Span<const float>(&high, 1), {1}}}, 2, params); }) ==
         COW_MLX_EINVAL);
  Program moved(std::move(program));
  EXPECT(thrown([&] { program.cancel(); }) == COW_MLX_EHANDLE);
}

static const char* const SLOPE = R"({
  "inputs": [{"name": "x", "dtype": "float32", "shape": ["rows", 1]},
             {"name": "y", "dtype": "float32", "shape": ["rows"]}],
  "parameters": [{"name": "w", "dtype": "float32", "shape": [1], "init": "zeros"}],
  "nodes": [{"name": "z", "op": "matmul", "inputs": ["x", "w"]},
            {"name": "loss", "op": "mse_loss", "inputs": ["z", "y"]}],
  "outputs": ["loss"]})";

/* y is 3 x. */
static std::optional<std::vector<Array>> slope_batch(std::size_t step) {
  const auto far = static_cast<float>(step % 3);
  std::vector<Array> batch;
  batch.push_back(Array(std::vector<float>{1, far}, {2, 1}));
  batch.push_back(Array(std::vector<float>{3, 3 * far}));
  return batch;
}

static TrainingParams slope_params() {
  TrainingParams params;
  params.optimizer = R"({"name": "sgd", "learning_rate": 0.2})";
  return params;
}

static void a_program_is_trained(Host& host) {
  const Program program(SLOPE);
  const Training training(program, slope_params());
  std::vector<float> x = {1, 2}, y = {3, 6};
  const TrainingEvent first = training.step({{x, {2, 1}}, {y, {2}}});
  EXPECT(first.step == 1 && first.loss == 22.5 && first.targets == 2);
  FitParams fit;
  fit.steps = 40;
  fit.next_batch = slope_batch;
  std::size_t heard = 0;
  training.fit(fit, [&](const TrainingEvent& event) { return (heard = event.step) > 0; });
  EXPECT(heard == 40 && std::abs(training.parameter("w").values<float>()[0] - 3) < 1e-2);
  const std::string folder = host.folder + "/training";
  training.save(folder);
  const Array start(std::vector<float>{7});
  TrainingParams given = slope_params();
  given.initial = {{"w", &start}};
  const Training other(program, given);
  EXPECT(other.parameter("w").values<float>()[0] == 7);
  other.load(folder);
  EXPECT(other.parameter("w").values<float>() == training.parameter("w").values<float>());
  const Array all_x(std::vector<float>{1, 2}, {2, 1}), all_y(std::vector<float>{3, 6});
  FitParams arrays;
  arrays.inputs = {&all_x, &all_y};
  EXPECT(other.evaluate(arrays).validation_loss < 1e-3);
  EXPECT(other.info().find("\"step\": 40") != std::string::npos);
  other.cancel();
}

static void a_training_hears_what_its_functions_throw(Host&) {
  const Training training(Program(SLOPE), slope_params());
  FitParams fit;
  fit.steps = 5;
  fit.next_batch = [](std::size_t) -> std::optional<std::vector<Array>> {
    throw std::runtime_error("no data");
  };
  const auto said = [&](const TrainingFn& hear) -> std::string {
    try {
      training.fit(fit, hear);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT(said({}) == "no data");
  fit.next_batch = slope_batch;
  EXPECT(said([](const TrainingEvent&) -> bool { throw std::runtime_error("heard"); }) == "heard");
  EXPECT(thrown([&] { training.fit(fit, [](const TrainingEvent&) { return false; }); }) ==
         COW_MLX_ECANCELED);
  fit.next_batch = [](std::size_t) { return std::vector<Array>(); };
  EXPECT(thrown([&] { training.fit(fit); }) == COW_MLX_EINVAL);
  EXPECT(thrown([&] { training.adapter(); }) == COW_MLX_EUNSUPPORTED);
}

static void a_model_is_trained(Host& host) {
  TrainingParams params;
  params.fine_tune = R"({"rank": 2, "num_layers": 1})";
  const Training training(host.model, params);
  FitParams fit;
  fit.steps = 1;
  fit.lines = "{\"text\": \"The quick brown fox.\"}";
  std::vector<std::int32_t> kinds;
  training.fit(fit, [&](const TrainingEvent& event) {
    kinds.push_back(event.kind);
    return true;
  });
  EXPECT(kinds == std::vector<std::int32_t>({COW_MLX_TRAINING_STEP, COW_MLX_TRAINING_END}));
  const Adapter adapter = training.adapter();
  EXPECT(adapter.handle() != 0);
  training.write(host.folder + "/adapter");
  training.write(host.folder + "/fused", R"({"fuse": true})");
  EXPECT(thrown([&] { training.write(host.folder + "/no/where"); }) == COW_MLX_ENOENT);
}

static void starts_are_counted_and_logs_outlive_their_runtime(Host& host) {
  Runtime second;
  EXPECT(Runtime::info().find("\"handles\"") != std::string::npos);
  second.stop();
  EXPECT(thrown([&] { second.stop(); }) == COW_MLX_ESTATE);
  RuntimeParams params;
  params.device = "abacus";
  EXPECT(thrown([&] { Runtime other(params); }) != COW_MLX_OK);
  EXPECT(!host.text(host.context).empty());
}

static const struct {
  const char* name;
  void (*run)(Host&);
} scenarios[] = {
#define SCENARIO(name) {#name, name}
    SCENARIO(a_range_gives_what_the_callback_gives),
    SCENARIO(a_range_goes_on_after_break),
    SCENARIO(a_range_ends_when_cancelled),
    SCENARIO(next_tells_the_end),
    SCENARIO(calls_return_at_once),
    SCENARIO(a_function_of_the_host_changes_logits),
    SCENARIO(what_fails_later_is_thrown_later),
    SCENARIO(a_callback_that_throws_cancels_and_is_heard),
    SCENARIO(every_callback_may_throw),
    SCENARIO(a_callback_that_returns_false_cancels),
    SCENARIO(errors_have_status_and_message),
    SCENARIO(a_nul_byte_in_a_path_is_refused),
    SCENARIO(an_object_moved_from_is_refused_and_the_other_frees),
    SCENARIO(what_is_moved_from_or_null_is_never_taken_for_none),
    SCENARIO(handles_are_freed_with_their_owners),
    SCENARIO(parameters_begin_with_the_defaults),
    SCENARIO(owned_parameters_reach_the_library),
    SCENARIO(a_model_tells_and_translates),
    SCENARIO(a_context_is_kept_cut_and_copied),
    SCENARIO(images_have_a_size_and_a_hash),
    SCENARIO(an_adapter_is_used_until_it_is_cleared),
    SCENARIO(a_chat_gives_events),
    SCENARIO(an_array_has_what_it_was_made_of),
    SCENARIO(arrays_are_saved_and_passed_on),
    SCENARIO(an_array_refuses_other_types_and_sizes),
    SCENARIO(an_operation_is_applied),
    SCENARIO(a_program_runs_on_memory_and_arrays),
    SCENARIO(a_program_refuses_what_does_not_fit),
    SCENARIO(a_program_is_trained),
    SCENARIO(a_training_hears_what_its_functions_throw),
    SCENARIO(a_model_is_trained),
    SCENARIO(starts_are_counted_and_logs_outlive_their_runtime),
};

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  try {
    RuntimeParams params;
    params.log = [](std::int32_t, std::string_view) { throw std::runtime_error("dropped"); };
    Runtime runtime(params);
    Runtime moved = std::move(runtime);
    Host host(argv[1], argv[2]);
    for (const auto& scenario : scenarios) {
      if (std::strcmp(scenario.name, argv[3]) != 0) continue;
      scenario.run(host);
      return 0;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  std::fprintf(stderr, "no scenario %s\n", argv[3]);
  return 2;
}
