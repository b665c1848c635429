#include "layers.h"

#include <algorithm>
#include <stdexcept>

#include "activations.h"
#include "buffers.h"
#include "dispatch.h"
#include "layers/arena.h"
#include "pool.h"

namespace mx = mlx::core;

namespace cowmlx {
namespace {

/* All that the task needs; mlx keeps the arrays that it points into until it is done. */
struct Work {
  std::shared_ptr<const HeldLayers> held;
  LayersCall call;
  std::vector<Angles> angles;
  std::vector<LayerCache> caches;
  std::vector<Copy> copies;
  std::vector<Memory> memory;
  std::vector<Lines> tokens;            /* one, or */
  std::vector<Activations> activations; /* one */
  std::vector<int32_t> ids;
  Scalar out = Scalar::Float32;
  void* result = nullptr;
  char* scratch = nullptr;
  Step step{};

  void run() {
    const Layers& layers = held->layers;
    const int rows = step.rows * step.tokens;
    for (const Copy& copy : copies) copy.run();
    for (const Lines& lines : tokens) {
      lines.copy(0, lines.count(), reinterpret_cast<char*>(ids.data()));
      for (int32_t& id : ids) id = std::clamp(id, 0, layers.embedding.rows - 1);
      step.ids = ids.data();
    }
    for (const Activations& x : activations) x.read(*step.table, 0, rows, step.x);
    cowmlx::run(layers, step, scratch);
    if (out == Scalar::Float32) return;
    for (int64_t row = 0; row < rows; row++)
      step.table->store(step.x + row * layers.width, layers.width,
                        static_cast<uint16_t*>(result) + row * layers.width, out);
  }
};

}  // namespace

void LayersStep::eval_cpu(const Arrays& inputs, Arrays& outputs) {
  Takeover takeover(inputs, outputs);
  auto& encoder = mx::cpu::get_command_encoder(stream());
  auto work = std::make_shared<Work>();
  work->held = held_;
  work->call = call_;
  const Layers& layers = held_->layers;
  const size_t count = layers.layers.size();

  const mx::array& first = inputs[0];
  Step& step = work->step;
  step.table = &table();
  step.rows = first.shape(0);
  step.tokens = first.ndim() == 1 ? 1 : first.shape(1);
  if (first.ndim() < 3) {
    work->tokens.emplace_back(first);
    work->ids.resize(first.size());
  } else {
    work->activations.emplace_back(first);
  }
  size_t next = 1;
  for (int i = 0; i < call_.angles; i++, next += 2)
    work->angles.push_back({inputs[next].data<float>(), inputs[next + 1].data<float>(),
                            static_cast<int32_t>(inputs[next].shape(1))});
  const bool writes = call_.part != Part::FinishLast;
  work->caches.resize(count);
  for (size_t layer = writes ? 0 : count - 1, out = 1; layer < count; layer++) {
    const auto stored = [&] {
      void* data[3] = {};
      for (int part = 0; part < call_.packing.parts(); part++, next++, out++) {
        if (writes) takeover.buffer(next, out);
        mx::array held = writes ? outputs[out] : inputs[next];
        data[part] = held.data<void>();
      }
      return Stored{data[0], data[1], data[2]};
    };
    LayerCache& cache = work->caches[layer];
    cache.capacity = static_cast<int32_t>(inputs[next].shape(2));
    cache.keys = stored();
    cache.values = stored();
    cache.type = scalar_of(inputs[next - 1], "values");
  }
  work->copies = takeover.copies();

  mx::array& result = outputs[0];
  result.set_data(mx::allocator::malloc(result.nbytes()));
  work->out = scalar_of(result, "the result");
  work->result = result.data<void>();
  if (call_.logits) step.logits = result.data<float>();
  step.x = work->out == Scalar::Float32 && !call_.logits
               ? result.data<float>()
               : temporary<float>(encoder, int64_t{step.rows} * step.tokens * layers.width);
  step.offsets = work->call.offsets.data();
  step.places = work->call.places.data();
  step.angles = work->angles.data();
  step.caches = work->caches.data();
  step.packing = call_.packing;
  step.part = call_.part;
  step.workers = threads();
  const size_t bytes = scratch_size(layers, step) + Arena::ALIGNMENT;
  auto begin = reinterpret_cast<uintptr_t>(temporary<char>(encoder, static_cast<int64_t>(bytes)));
  begin = (begin + Arena::ALIGNMENT - 1) / Arena::ALIGNMENT * Arena::ALIGNMENT;
  work->scratch = reinterpret_cast<char*>(begin);
  takeover.finish();
  work->memory = takeover.memory();
  encoder.dispatch([work] { work->run(); });
}

void LayersStep::eval_gpu(const Arrays&, Arrays&) {
  throw std::runtime_error("kernels run on the CPU");
}

}  // namespace cowmlx
