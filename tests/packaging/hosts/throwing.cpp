/* Callbacks of cow_mlx.hpp that throw, a scenario each: throwing MODEL SCENARIO */
#include <cow_mlx.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>

using namespace cowmlx;

#define EXPECT(condition)                                                  \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition); \
      std::exit(1);                                                        \
    }                                                                      \
  } while (0)

static int alive = 0;

/* What callbacks here throw: large enough to be seen by a sanitizer, and counted. */
struct Mine {
  int number;
  std::string text;

  explicit Mine(int n) : number(n), text(200, 'm') { alive++; }
  Mine(const Mine& other) : number(other.number), text(other.text) { alive++; }
  ~Mine() { alive--; }
};

/* The number of the Mine that a call throws; 0 if it throws none. */
template <typename Call>
static int thrown(Call call) {
  int number = 0;
  try {
    call();
  } catch (const Mine& mine) {
    EXPECT(mine.text == std::string(200, 'm'));
    number = mine.number;
  }
  EXPECT(alive == 0);
  return number;
}

struct Host {
  const char* path;
  Model model;
  Context context;
  Tokens prompt;
  GenerationParams brief;

  explicit Host(const char* folder)
      : path(folder), model(path), context(model), prompt(model.tokenize("Once upon a time")) {
    brief.max_tokens = 4;
  }

  void still_works() {
    std::string text;
    auto keep = [&](std::string_view part) { return text += part, true; };
    context.generate(prompt, keep, brief);
    EXPECT(!text.empty());
  }
};

static void every_callback_may_throw_again_and_again(Host& host) {
  for (int round = 0; round < 10; round++) {
    ModelParams loading;
    loading.progress = [](float, std::string_view) -> bool { throw Mine(1); };
    GenerationParams prompting;
    prompting.prompt_progress = [](std::size_t, std::size_t) -> bool { throw Mine(2); };
    auto on_text = [](std::string_view) -> bool { throw Mine(3); };
    auto on_event = [](const Event&) -> bool { throw Mine(4); };
    EXPECT(thrown([&] { Model(host.path, loading); }) == 1);
    EXPECT(thrown([&] { host.context.begin(host.prompt, prompting); }) == 2);
    EXPECT(thrown([&] { auto range = host.context.generate(host.prompt, prompting); }) == 2);
    EXPECT(thrown([&] { host.context.generate(host.prompt, on_text, prompting); }) == 2);
    EXPECT(thrown([&] { host.context.generate(host.prompt, on_text); }) == 3);
    EXPECT(thrown([&] { host.context.chat({{"user", "Hello"}}, on_event, prompting); }) == 2);
    EXPECT(thrown([&] { host.context.chat({{"user", "Hello"}}, on_event); }) == 4);
    host.still_works();
  }
}

static void the_last_callback_may_throw(Host& host) {
  ModelParams loading;
  loading.progress = [](float fraction, std::string_view) -> bool {
    return fraction < 1 ? true : throw Mine(1);
  };
  EXPECT(thrown([&] { Model(host.path, loading); }) == 1);
  auto on_event = [](const Event& event) -> bool {
    return event.kind != COW_MLX_EVENT_END ? true : throw Mine(2);
  };
  EXPECT(thrown([&] { host.context.chat({{"user", "Hello"}}, on_event); }) == 2);
  EXPECT(Runtime::info().find("\"model\": 1") != std::string::npos);
}

static void it_comes_out_of_nested_calls(Host& host) {
  Context inner(host.model);
  auto fail = [](std::string_view) -> bool { throw Mine(5); };
  auto nest = [&](std::string_view) { return inner.generate(host.prompt, fail), true; };
  EXPECT(thrown([&] { host.context.generate(host.prompt, nest); }) == 5);
  host.still_works();
}

static void one_that_is_caught_in_a_callback_is_over(Host& host) {
  Context inner(host.model);
  int caught = 0;
  auto fail = [](std::string_view) -> bool { throw Mine(6); };
  auto nest = [&](std::string_view) {
    caught += thrown([&] { inner.generate(host.prompt, fail); });
    return true;
  };
  EXPECT(thrown([&] { host.context.generate(host.prompt, nest, host.brief); }) == 0);
  EXPECT(caught >= 6 && caught % 6 == 0);
}

static void it_is_heard_where_the_call_fails_for_another_reason_too(Host& host) {
  auto cancel = [&](std::string_view) -> bool {
    host.context.cancel();
    throw Mine(7);
  };
  EXPECT(thrown([&] { host.context.generate(host.prompt, cancel); }) == 7);
  host.still_works();
  auto free = [&](std::string_view) -> bool {
    cow_mlx_context_free(host.context.handle());
    throw Mine(8);
  };
  EXPECT(thrown([&] { host.context.generate(host.prompt, free); }) == 8);
}

static void one_behind_the_end_of_the_runtime_is_heard(Host& host) {
  auto stop = [](std::string_view) -> bool {
    cow_mlx_runtime_stop();
    throw Mine(9);
  };
  EXPECT(thrown([&] { host.context.generate(host.prompt, stop); }) == 9);
  EXPECT(cow_mlx_runtime_start(nullptr) == COW_MLX_OK);
}

static void threads_throw_apart(Host& host) {
  std::vector<std::future<int>> calls;
  std::vector<Context> contexts;
  for (int i = 0; i < 4; i++) contexts.emplace_back(host.model);
  for (int i = 0; i < 4; i++) {
    calls.push_back(std::async(std::launch::async, [&, i] {
      try {
        contexts[i].generate(host.prompt, [i](std::string_view) -> bool { throw i; });
      } catch (int number) {
        return number;
      }
      return -1;
    }));
  }
  for (int i = 0; i < 4; i++) EXPECT(calls[i].get() == i);
}

static void an_error_takes_its_message_to_another_thread(Host& host) {
  auto call = std::async(std::launch::async, [&] { host.context.begin({1, 99999}); });
  std::string message;
  try {
    call.get();
  } catch (const Error& error) {
    message = error.what();
  }
  EXPECT(message.find("Context::begin: tokens[1] is 99999") == 0);
  const std::string told = message.substr(message.find(": ")); /* after the name of the call */
  EXPECT(host.context.info().find("context_begin" + told) != std::string::npos);
}

static const struct {
  const char* name;
  void (*run)(Host&);
} scenarios[] = {
#define SCENARIO(name) {#name, name}
    SCENARIO(every_callback_may_throw_again_and_again),
    SCENARIO(the_last_callback_may_throw),
    SCENARIO(it_comes_out_of_nested_calls),
    SCENARIO(one_that_is_caught_in_a_callback_is_over),
    SCENARIO(it_is_heard_where_the_call_fails_for_another_reason_too),
    SCENARIO(one_behind_the_end_of_the_runtime_is_heard),
    SCENARIO(threads_throw_apart),
    SCENARIO(an_error_takes_its_message_to_another_thread),
};

/* The log throws throughout, which nobody hears. */
int main(int argc, char** argv) {
  if (argc != 3) return 2;
  RuntimeParams params;
  int logged = 0;
  params.log = [&](std::int32_t, std::string_view) {
    logged++;
    throw Mine(100);
  };
  Runtime runtime(params);
  Host host(argv[1]);
  EXPECT(logged >= 2 && alive == 0);
  for (const auto& scenario : scenarios) {
    if (std::strcmp(scenario.name, argv[2]) != 0) continue;
    scenario.run(host);
    EXPECT(alive == 0);
    return 0;
  }
  std::fprintf(stderr, "no scenario %s\n", argv[2]);
  return 2;
}
