/*
 * Says where somebody speaks: classify NETWORK.onnx SOUND.wav
 * The network is Silero VAD, silero_vad_op18_ifless.onnx of the Python package silero-vad; the
 * sound has 16,000 samples a second, of 16 bits, on one channel. Each 32 ms go through the network
 * with the 64 samples before them, and with the state that it gave for the last ones: an array that
 * stays in the library.
 */
#include <cow_mlx.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RATE = 16000, BEFORE = 64, SAMPLES = 512, STATE = 2 * 128 };

/* Probabilities at which speech begins, and ends. */
static const float BEGINS = 0.5f, ENDS = 0.35f;

static void check(cow_mlx_status status) {
  if (status == COW_MLX_OK) return;
  fprintf(stderr, "%s: %s\n", cow_mlx_status_name(status), cow_mlx_error_message());
  exit(1);
}

static void refuse(const char* path, const char* why) {
  fprintf(stderr, "%s: %s\n", path, why);
  exit(1);
}

static unsigned number(const unsigned char* bytes, int count) {
  unsigned value = 0;
  for (int i = count; i-- > 0;) value = value << 8 | bytes[i];
  return value;
}

/* Opens a WAV file where its samples begin; returns how many there are. */
static unsigned open_sound(const char* path, FILE** sound) {
  unsigned char head[12], part[8], format[16];
  *sound = fopen(path, "rb");
  if (!*sound) refuse(path, "cannot be opened");
  if (fread(head, 1, 12, *sound) != 12 || memcmp(head, "RIFF", 4) != 0 ||
      memcmp(head + 8, "WAVE", 4) != 0) {
    refuse(path, "is no WAV file");
  }
  bool has_format = false;
  while (fread(part, 1, 8, *sound) == 8) {
    unsigned size = number(part + 4, 4);
    if (memcmp(part, "data", 4) == 0 && has_format) return size / 2;
    if (memcmp(part, "fmt ", 4) == 0 && size >= 16) {
      if (fread(format, 1, 16, *sound) != 16) break;
      has_format = number(format, 2) == 1 && number(format + 2, 2) == 1 &&
                   number(format + 4, 4) == RATE && number(format + 14, 2) == 16;
      size -= 16;
    }
    if (fseek(*sound, (long)size + (size & 1), SEEK_CUR) != 0) break;
  }
  refuse(path, "must have 16,000 samples a second, of 16 bits, on one channel");
  return 0;
}

/* Reads up to SAMPLES samples as numbers from -1 to 1; silence follows the last ones. */
static void read_samples(FILE* sound, float* samples) {
  unsigned char bytes[2 * SAMPLES] = {0};
  (void)!fread(bytes, 1, sizeof bytes, sound);
  for (int i = 0; i < SAMPLES; i++) {
    samples[i] = (float)(short)number(bytes + 2 * i, 2) / 32768;
  }
}

/* Memory of floats in row-major order. */
static cow_mlx_tensor floats(float* data, size_t bytes, int32_t rank, const int64_t* shape) {
  cow_mlx_tensor tensor = {.struct_size = sizeof tensor,
                           .data = data,
                           .bytes = bytes,
                           .dtype = COW_MLX_FLOAT32,
                           .rank = rank,
                           .shape = shape};
  return tensor;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: %s NETWORK.onnx SOUND.wav\n", argv[0]);
    return 2;
  }
  FILE* sound;
  const unsigned total = open_sound(argv[2], &sound);

  float samples[BEFORE + SAMPLES] = {0}, silence[STATE] = {0}, speaks;
  const int64_t of_sound[] = {1, BEFORE + SAMPLES}, of_state[] = {2, 1, 128}, one[] = {1, 1};
  const cow_mlx_tensor input = floats(samples, sizeof samples, 2, of_sound);
  const cow_mlx_tensor first = floats(silence, sizeof silence, 3, of_state);
  const cow_mlx_tensor output = floats(&speaks, sizeof speaks, 2, one);

  cow_mlx_program network;
  cow_mlx_program_params params;
  cow_mlx_program_params_init(&params, sizeof params);
  params.fixed = "{\"sr\": 16000}";
  check(cow_mlx_runtime_start(NULL));
  check(cow_mlx_program_load(argv[1], &params, &network));

  cow_mlx_value inputs[] = {{0, &input}, {0, &first}};
  unsigned began = 0;
  bool is_speech = false;
  for (unsigned at = 0; at < total; at += SAMPLES) {
    memmove(samples, samples + SAMPLES, BEFORE * sizeof *samples);
    read_samples(sound, samples + BEFORE);
    cow_mlx_value outputs[] = {{0, &output}, {0, NULL}};
    check(cow_mlx_program_run(network, inputs, 2, outputs, 2, NULL));
    if (inputs[1].array) check(cow_mlx_array_free(inputs[1].array));
    inputs[1] = (cow_mlx_value){outputs[1].array, NULL};
    if (!is_speech && speaks > BEGINS) began = at;
    if (is_speech && speaks < ENDS) {
      printf("speech from %.2f to %.2f s\n", (double)began / RATE, (double)at / RATE);
    }
    is_speech = is_speech ? speaks >= ENDS : speaks > BEGINS;
  }
  if (is_speech) printf("speech from %.2f s to the end\n", (double)began / RATE);

  fclose(sound);
  if (inputs[1].array) check(cow_mlx_array_free(inputs[1].array));
  check(cow_mlx_program_free(network));
  return cow_mlx_runtime_stop();
}
