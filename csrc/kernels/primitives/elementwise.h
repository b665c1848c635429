/* Fused elementwise operations of float32. */
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "functions.h"
#include "operation.h"

namespace cowmlx {

constexpr size_t MOST_INSTRUCTIONS = 512; /* of an operation */
constexpr size_t MOST_INPUTS = 64;

/* Values are numbered: first the inputs, then the result of each instruction. */
struct Instruction {
  Code code;
  int a, b;
};

/* Where a value is written as a part of an array that others write, too: `width` numbers from
 * `offset` on, and again every `pitch` numbers. */
struct Part {
  int value;
  int output; /* of the operation */
  int64_t offset, width, pitch;
};

/* The instructions of a fused operation. */
struct Plan {
  mx::Shape shape; /* of all values */
  int inputs;
  std::vector<Instruction> instructions;
  std::vector<int> outputs; /* values that are outputs; those with parts follow */
  std::vector<Part> parts;
  std::vector<mx::Shape> begins; /* of each input: where its slice of that shape begins; or {} */
  std::vector<int> slots{};      /* of each instruction: where its block is; -1: in an output */
  std::vector<int> results{};    /* of each instruction: which output it is; -1: none */
  std::vector<int> written{};    /* of each instruction: which part it is; -1: none */
  std::vector<int> reads{};      /* the last instruction that reads each input */
  int count = 0;                 /* of slots */

  /* Let blocks be used again once nothing reads them any more. */
  void place();
};

/* How an input is broadcast to the shape of the results: each run of `inner` numbers is repeated
 * `repeat` times before the next run. */
struct Spread {
  int64_t inner, repeat;
};

/* None if the broadcast axes are not adjacent. */
std::optional<Spread> spread(const mx::Shape& own, const mx::Shape& all);

/* `plan`: after place(). */
std::shared_ptr<mx::Primitive> elementwise(mx::Stream stream, Plan plan);

}  // namespace cowmlx
