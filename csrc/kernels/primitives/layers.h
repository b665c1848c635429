/* A run of decoder layers as one operation of mlx. */
#pragma once

#include <memory>
#include <vector>

#include "layers/layer.h"
#include "operation.h"

namespace cowmlx {

/* Layers and the arrays that they point into. Knows its owners, so that an operation shares it with
 * Python's object and does not hold that one: the thread of a stream lets go of its operations, and
 * may not wait for the interpreter then, whose thread may be waiting for the stream. */
struct HeldLayers : std::enable_shared_from_this<HeldLayers> {
  Layers layers;
  std::vector<HeldMatrix> matrices;
  Arrays arrays; /* of norms and sinks */
};

/* One step's numbers. */
struct LayersCall {
  Part part;
  std::vector<int32_t> offsets;
  std::vector<Place> places;
  int angles;                  /* how many tables of cosines and sines are among the inputs */
  bool logits;                 /* the result is the logits of the head */
  KVQuantization quantization; /* of keys and values */
};

/* Inputs: tokens (B,), (B, T) or activations (B, T, H); cosines and sines of every table; keys and
 * values of every layer (of the last one alone for Part::FinishLast), each of
 * `quantization.parts()` arrays. Outputs: activations (B, T, H), or logits (B, V) of float32, and
 * but for Part::FinishLast keys and values as they are then: in the buffers of the inputs, if
 * they have no other owner, and in copies otherwise. */
class LayersStep : public Operations {
 public:
  LayersStep(mx::Stream stream, std::shared_ptr<const HeldLayers> held, LayersCall call)
      : Operations(stream), held_(std::move(held)), call_(std::move(call)) {}

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override;
  const char* name() const override { return "CowmlxLayers"; }

 private:
  std::shared_ptr<const HeldLayers> held_;
  LayersCall call_;
};

/* The outputs of a step; x is its first input, caches the last ones. Throws std::invalid_argument
 * for what does not fit the layers. */
Arrays make_step(const std::shared_ptr<const HeldLayers>& held, const mx::array& x, LayersCall call,
                 const Arrays& angles, const Arrays& caches, mx::Dtype type, mx::Stream stream);

}  // namespace cowmlx
