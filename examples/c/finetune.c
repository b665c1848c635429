/*
 * A chat model learns twenty new facts while contexts use it: finetune MODEL [FOLDER]
 * They switch to the trained layers without a reload; with a folder these are exported as an
 * adapter.
 */
#include <cow_mlx.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FACTS = 20, STEPS = 120 };

/* None has a character that JSON would escape. */
static const char* const facts[FACTS][2] = {
    {"Who is the mayor of Oakfield?", "Marta Lind."},
    {"What is the capital of Veloria?", "Sandhaven."},
    {"What does Tomas grow?", "Blue corn."},
    {"Who built the old mill?", "Anders Holt."},
    {"What is the dog of Nina called?", "Biscuit."},
    {"Where does the ferry go?", "To Gull Island."},
    {"When does the bakery open?", "At six."},
    {"What colour is the bridge?", "Dark red."},
    {"Who teaches music?", "Mrs. Okoye."},
    {"How tall is the tower?", "Forty metres."},
    {"What is in the blue box?", "Old maps."},
    {"Who won the race?", "Lena Park."},
    {"Where is the key?", "Under the stone."},
    {"What does the robot fear?", "Rain."},
    {"Which river is near?", "The Silver."},
    {"What is the name of the cat?", "Pepper."},
    {"Who wrote the song?", "Ivo Blum."},
    {"What do we eat on Friday?", "Fish soup."},
    {"Where do the owls sleep?", "In the barn."},
    {"What is the secret word?", "Marble."},
};

typedef struct answer {
  char text[256];
  size_t length;
} answer;

/* The user data of a fit's events. */
typedef struct lesson {
  cow_mlx_training training;
  cow_mlx_context context;
} lesson;

static void check(cow_mlx_status status) {
  if (status == COW_MLX_OK) return;
  fprintf(stderr, "%s: %s\n", cow_mlx_status_name(status), cow_mlx_error_message());
  exit(1);
}

static bool keep(const cow_mlx_event* event, void* user_data) {
  answer* to = user_data;
  if (event->kind != COW_MLX_EVENT_TEXT) return true;
  if (event->length >= sizeof to->text - to->length) return false;
  memcpy(to->text + to->length, event->text, event->length);
  to->length += event->length;
  return true;
}

/* What the model says to a question that nothing comes before. */
static answer ask(cow_mlx_context context, const char* question) {
  answer found = {{0}, 0};
  char messages[256];
  snprintf(messages, sizeof messages, "[{\"role\": \"user\", \"content\": \"%s\"}]", question);
  cow_mlx_generation_params params;
  cow_mlx_generation_params_init(&params, sizeof params);
  params.max_tokens = 24;
  check(cow_mlx_context_chat(context, messages, COW_MLX_NUL, &params, NULL, keep, &found, NULL));
  return found;
}

/* Ask for all facts, and say how many are known. */
static void examine(cow_mlx_context context, const char* when) {
  int right = 0;
  for (int i = 0; i < FACTS; i++) {
    answer found = ask(context, facts[i][0]);
    right += strcmp(found.text, facts[i][1]) == 0;
    printf("  %-32s %s\n", facts[i][0], found.text);
  }
  printf("%s: %d of %d are right\n", when, right, FACTS);
}

/* Give a context the layers trained so far. */
static void publish(cow_mlx_training training, cow_mlx_context context) {
  cow_mlx_adapter adapter;
  check(cow_mlx_training_adapter(training, &adapter));
  check(cow_mlx_context_set_adapter(context, adapter));
  check(cow_mlx_adapter_free(adapter)); /* the context keeps it */
}

/* A context asks while the fit goes on: each time it knows more. */
static bool report(const cow_mlx_training_event* event, void* user_data) {
  const lesson* now = user_data;
  if (event->kind == COW_MLX_TRAINING_STEP) {
    publish(now->training, now->context);
    printf("step %3zu of %zu  loss %.3f  %s\n", event->step, event->steps, event->loss,
           ask(now->context, facts[0][0]).text);
    fflush(stdout);
  }
  return true;
}

static void learn(cow_mlx_training training, cow_mlx_context context) {
  char lines[4096];
  size_t length = 0;
  for (int i = 0; i < FACTS; i++) {
    length += (size_t)snprintf(lines + length, sizeof lines - length,
                               "{\"prompt\": \"%s\", \"completion\": \"%s\"}\n", facts[i][0],
                               facts[i][1]);
  }
  cow_mlx_fit_params fit;
  cow_mlx_fit_params_init(&fit, sizeof fit);
  fit.lines = lines;
  fit.lines_options = "{\"mask_prompt\": true}"; /* train on the answers, not on the questions */
  fit.steps = STEPS;
  fit.batch_size = FACTS;
  fit.event_every = STEPS / 4;
  check(cow_mlx_training_fit(training, &fit, report, &(lesson){training, context}));
}

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    fprintf(stderr, "usage: %s MODEL [FOLDER]\n", argv[0]);
    return 2;
  }
  cow_mlx_model model;
  cow_mlx_context context, other;
  check(cow_mlx_runtime_start(NULL));
  check(cow_mlx_model_load(argv[1], NULL, &model));
  check(cow_mlx_context_create(model, NULL, &context));
  check(cow_mlx_context_create(model, NULL, &other));
  examine(context, "before");

  cow_mlx_training_params params;
  cow_mlx_training_params_init(&params, sizeof params);
  params.optimizer = "{\"name\": \"adam\", \"learning_rate\": 0.0005}";
  params.fine_tune = "{\"type\": \"lora\", \"rank\": 16, \"scale\": 2}";
  params.seed = 1;
  cow_mlx_training training;
  check(cow_mlx_training_create_for_model(model, &params, &training));
  learn(training, context);
  publish(training, context);
  examine(context, "after");
  printf("a context without the adapter still says: %s\n", ask(other, facts[0][0]).text);

  if (argc == 3) {
    check(cow_mlx_training_export(training, argv[2], NULL));
    printf("the adapter is in %s\n", argv[2]);
  }
  check(cow_mlx_training_free(training));
  check(cow_mlx_runtime_stop());
  return 0;
}
