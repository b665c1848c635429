/* Concatenations of a recording that its caller computes. */
#include <cstring>

#include "recording.h"

namespace cowmlx {
namespace {

constexpr int64_t CHUNK_BYTES = 1 << 16; /* that one thread copies at a time, about */

/* A part: `width` bytes of each line of the result, from `offset` on. */
struct Source {
  std::optional<Copy> copy;
  const char* data;
  int64_t offset, width;
};

struct Job {
  std::vector<Source> sources;
  char* out;
  int64_t lines, pitch; /* bytes from a line to the next */

  void operator()() const {
    const Series series;
    for (const Source& source : sources)
      if (source.copy) source.copy->run();
    const int64_t each = std::max<int64_t>(1, CHUNK_BYTES * std::ssize(sources) / pitch);
    const int64_t chunks = (lines + each - 1) / each;
    parallel(static_cast<int>(chunks * std::ssize(sources)), [&](int index) {
      const Source& source = sources[static_cast<size_t>(index / chunks)];
      const int64_t begin = index % chunks * each, end = std::min(begin + each, lines);
      for (int64_t line = begin; line < end; line++)
        std::memcpy(out + line * pitch + source.offset, source.data + line * source.width,
                    static_cast<size_t>(source.width));
    });
  }
};

class Concatenation : public Operation {
 public:
  Concatenation(mx::Stream stream, int axis) : Operation(stream), axis_(axis) {}

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    auto& encoder = prepare(stream(), inputs, out);
    if (out.size() == 0) return;
    auto behind = static_cast<int64_t>(out.itemsize());
    for (auto axis = static_cast<int>(out.ndim()); --axis > axis_;) behind *= out.shape(axis);
    Job job{{}, out.data<char>(), 0, out.shape(axis_) * behind};
    job.lines = static_cast<int64_t>(out.nbytes()) / job.pitch;
    int64_t offset = 0;
    for (const mx::array& input : inputs) {
      const int64_t width = input.shape(axis_) * behind;
      if (width == 0) continue;
      Source source{{}, input.data<char>(), offset, width};
      if (!input.flags().row_contiguous) {
        auto* to = temporary<char>(encoder, static_cast<int64_t>(input.nbytes()));
        source.copy.emplace(Copy{Lines(input), to});
        source.data = to;
      }
      job.sources.push_back(std::move(source));
      offset += width;
    }
    dispatch(encoder, std::move(job));
  }

  const char* name() const override { return "CowmlxConcatenation"; }

 private:
  int axis_;
};

}  // namespace

void replace_concatenations(std::vector<Recorded>& steps) {
  for (Recorded& step : steps) {
    if (!is(*step.primitive, "Concatenate")) continue;
    const int axis = static_cast<const mx::Concatenate&>(*step.primitive).state();
    step.primitive = std::make_shared<Concatenation>(step.primitive->stream(), axis);
  }
}

}  // namespace cowmlx
