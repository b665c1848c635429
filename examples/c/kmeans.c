/*
 * k-means, written as one program: kmeans
 * The loop runs until no centre moves, and takes one round trip.
 */
#include <cow_mlx.h>
#include <stdio.h>
#include <stdlib.h>

enum { CLUSTERS = 3, POINTS = 300 };

/* What a round of the loop knows: the centres, how far one moved, the rounds; and the points. */
#define STATE                                                                  \
  "\"inputs\": [{\"name\": \"c\", \"dtype\": \"float32\", \"shape\": [3, 2]}," \
  "  {\"name\": \"moved\", \"dtype\": \"float32\", \"shape\": []},"            \
  "  {\"name\": \"round\", \"dtype\": \"int32\", \"shape\": []},"              \
  "  {\"name\": \"p\", \"dtype\": \"float32\", \"shape\": [\"n\", 2]}],"

/* A row for each point, a column for each centre: 1 where it is the nearest. */
#define NEAREST                                                                         \
  "{\"name\": \"nearest\","                                                             \
  " \"inputs\": [{\"name\": \"p\", \"dtype\": \"float32\", \"shape\": [\"n\", 2]},"     \
  "              {\"name\": \"c\", \"dtype\": \"float32\", \"shape\": [3, 2]}],"        \
  " \"nodes\": ["                                                                       \
  "  {\"name\": \"rows\", \"op\": \"expand_dims\", \"inputs\": [\"p\"],"                \
  "   \"attributes\": {\"axis\": 1}},"                                                  \
  "  {\"name\": \"columns\", \"op\": \"expand_dims\", \"inputs\": [\"c\"],"             \
  "   \"attributes\": {\"axis\": 0}},"                                                  \
  "  {\"name\": \"apart\", \"op\": \"subtract\", \"inputs\": [\"rows\", \"columns\"]}," \
  "  {\"name\": \"squares\", \"op\": \"square\", \"inputs\": [\"apart\"]},"             \
  "  {\"name\": \"far\", \"op\": \"sum\", \"inputs\": [\"squares\"],"                   \
  "   \"attributes\": {\"axis\": 2}},"                                                  \
  "  {\"name\": \"which\", \"op\": \"argmin\", \"inputs\": [\"far\"],"                  \
  "   \"attributes\": {\"axis\": 1}},"                                                  \
  "  {\"name\": \"members\", \"op\": \"one_hot\", \"inputs\": [\"which\"],"             \
  "   \"attributes\": {\"num_classes\": 3}}],"                                          \
  " \"outputs\": [\"members\"]}"

static const char* PROGRAM =
    "{\"inputs\": [{\"name\": \"points\", \"dtype\": \"float32\", \"shape\": [\"n\", 2]}],"
    " \"constants\": [{\"name\": \"chosen\", \"dtype\": \"int32\", \"value\": [0, 3, 1]},"
    "               {\"name\": \"far\", \"dtype\": \"float32\", \"value\": 1},"
    "               {\"name\": \"zero\", \"dtype\": \"int32\", \"value\": 0}],"
    " \"functions\": [" NEAREST
    ","
    "  {\"name\": \"moves\", " STATE
    "   \"constants\": [{\"name\": \"still\", \"dtype\": \"float32\", \"value\": 0}],"
    "   \"nodes\": [{\"name\": \"go\", \"op\": \"greater\", \"inputs\": [\"moved\", \"still\"]}],"
    "   \"outputs\": [\"go\"]},"
    "  {\"name\": \"move\", " STATE
    "   \"constants\": [{\"name\": \"one\", \"dtype\": \"float32\", \"value\": 1},"
    "                 {\"name\": \"more\", \"dtype\": \"int32\", \"value\": 1}],"
    "   \"nodes\": ["
    "    {\"name\": \"members\", \"op\": \"call\", \"inputs\": [\"p\", \"c\"],"
    "     \"attributes\": {\"function\": \"nearest\"}},"
    "    {\"name\": \"counts\", \"op\": \"sum\", \"inputs\": [\"members\"],"
    "     \"attributes\": {\"axis\": 0}},"
    "    {\"name\": \"sizes\", \"op\": \"maximum\", \"inputs\": [\"counts\", \"one\"]},"
    "    {\"name\": \"column\", \"op\": \"expand_dims\", \"inputs\": [\"sizes\"],"
    "     \"attributes\": {\"axis\": 1}},"
    "    {\"name\": \"turned\", \"op\": \"transpose\", \"inputs\": [\"members\"]},"
    "    {\"name\": \"sums\", \"op\": \"matmul\", \"inputs\": [\"turned\", \"p\"]},"
    "    {\"name\": \"centres\", \"op\": \"divide\", \"inputs\": [\"sums\", \"column\"]},"
    "    {\"name\": \"by\", \"op\": \"subtract\", \"inputs\": [\"centres\", \"c\"]},"
    "    {\"name\": \"size\", \"op\": \"abs\", \"inputs\": [\"by\"]},"
    "    {\"name\": \"most\", \"op\": \"max\", \"inputs\": [\"size\"]},"
    "    {\"name\": \"next\", \"op\": \"add\", \"inputs\": [\"round\", \"more\"]}],"
    "   \"outputs\": [\"centres\", \"most\", \"next\", \"p\"]}],"
    " \"nodes\": ["
    "  {\"name\": \"first\", \"op\": \"take\", \"inputs\": [\"points\", \"chosen\"],"
    "   \"attributes\": {\"axis\": 0}},"
    "  {\"outputs\": [\"centres\", \"moved\", \"rounds\", \"same\"], \"op\": \"while\","
    "   \"inputs\": [\"first\", \"far\", \"zero\", \"points\"],"
    "   \"attributes\": {\"condition\": \"moves\", \"body\": \"move\", \"max_iterations\": 100}},"
    "  {\"name\": \"members\", \"op\": \"call\", \"inputs\": [\"points\", \"centres\"],"
    "   \"attributes\": {\"function\": \"nearest\"}},"
    "  {\"name\": \"sizes\", \"op\": \"sum\", \"inputs\": [\"members\"],"
    "   \"attributes\": {\"axis\": 0}}],"
    " \"outputs\": [\"centres\", \"sizes\", \"rounds\"]}";

static void check(cow_mlx_status status) {
  if (status == COW_MLX_OK) return;
  fprintf(stderr, "%s: %s\n", cow_mlx_status_name(status), cow_mlx_error_message());
  exit(1);
}

/* Memory in row-major order. */
static cow_mlx_tensor tensor(void* data, int32_t dtype, size_t bytes, int32_t rank,
                             const int64_t* shape) {
  cow_mlx_tensor tensor = {.struct_size = sizeof tensor,
                           .data = data,
                           .bytes = bytes,
                           .dtype = dtype,
                           .rank = rank,
                           .shape = shape};
  return tensor;
}

int main(void) {
  /* Points within a distance of 1 from three places, one after the other. */
  static const float places[CLUSTERS][2] = {{1, 1}, {4, 1}, {2, 4}};
  static float points[POINTS][2];
  unsigned random = 1;
  for (int i = 0; i < POINTS; i++) {
    for (int j = 0; j < 2; j++) {
      random = random * 1103515245u + 12345u;
      points[i][j] = places[i % CLUSTERS][j] + ((float)(random >> 16 & 0x7fff) / 16384 - 1);
    }
  }
  float centres[CLUSTERS][2], sizes[CLUSTERS];
  int32_t rounds;
  const int64_t all[] = {POINTS, 2}, few[] = {CLUSTERS, 2};
  const cow_mlx_tensor of_points = tensor(points, COW_MLX_FLOAT32, sizeof points, 2, all);
  const cow_mlx_tensor of_centres = tensor(centres, COW_MLX_FLOAT32, sizeof centres, 2, few);
  const cow_mlx_tensor of_sizes = tensor(sizes, COW_MLX_FLOAT32, sizeof sizes, 1, few);
  const cow_mlx_tensor of_rounds = tensor(&rounds, COW_MLX_INT32, sizeof rounds, 0, NULL);

  cow_mlx_program program;
  check(cow_mlx_runtime_start(NULL));
  check(cow_mlx_program_create(PROGRAM, COW_MLX_NUL, NULL, &program));
  const cow_mlx_value inputs[] = {{0, &of_points}};
  cow_mlx_value outputs[] = {{0, &of_centres}, {0, &of_sizes}, {0, &of_rounds}};
  check(cow_mlx_program_run(program, inputs, 1, outputs, 3, NULL));
  for (int i = 0; i < CLUSTERS; i++) {
    printf("%.0f points around %.1f, %.1f\n", sizes[i], centres[i][0], centres[i][1]);
  }
  printf("after %d rounds\n", (int)rounds);
  check(cow_mlx_program_free(program));
  check(cow_mlx_runtime_stop());
  return 0;
}
