#include <atomic>
#include <memory>
#include <new>

#include "operation.h"
#include "sample.h"

namespace cowmlx {
namespace {

using Options = std::shared_ptr<SampleOptions>;

/* What a token is sampled from, besides arrays. */
struct Asked {
  int row; /* of the logits */
  Options options;
  uint64_t number;
  std::vector<int32_t> recent;
  std::vector<std::pair<int32_t, float>> terms;
  float most_surprise;
  int mask; /* its input, or -1 */
};
using AllAsked = std::vector<Asked>;

constexpr int PARTS = 5; /* of SampleMemory */

struct Job {
  std::shared_ptr<const AllAsked> asked;
  Activations logits;
  const uint32_t* last;           /* of each, tokens that were computing, or null */
  std::vector<const bool*> masks; /* of each, or null */
  char* memory;
  int64_t part; /* bytes of one of a worker's parts */
  int workers;
  uint32_t* out;
  float* surprises;

  void sample(const Table& table, int index, int worker) const {
    const Asked& own = (*asked)[static_cast<size_t>(index)];
    std::vector<int32_t> recent = own.recent;
    if (last != nullptr) recent.push_back(static_cast<int32_t>(last[index]));
    char* first = memory + PARTS * part * worker;
    const SampleMemory parts{
        reinterpret_cast<float*>(first), reinterpret_cast<float*>(first + part),
        reinterpret_cast<float*>(first + 2 * part), reinterpret_cast<float*>(first + 3 * part),
        reinterpret_cast<int32_t*>(first + 4 * part)};
    logits.read(table, own.row, 1, parts.logits);
    const SampleRow row{own.options.get(), own.number,
                        recent.data(),     static_cast<int64_t>(recent.size()),
                        own.terms.data(),  static_cast<int64_t>(own.terms.size()),
                        own.most_surprise, masks[static_cast<size_t>(index)]};
    const Sampled sampled = sample_row(table, row, logits.columns(), parts);
    out[index] = static_cast<uint32_t>(sampled.token);
    surprises[index] = sampled.surprise;
  }

  void operator()() const {
    const Table& used = table();
    std::atomic<bool> failed{false};
    share(static_cast<int>(asked->size()), workers, [&](int index, int worker) {
      try {
        sample(used, index, worker);
      } catch (const std::bad_alloc&) { /* a chunk does not throw */
        failed.store(true, std::memory_order_relaxed);
      }
    });
    if (failed.load(std::memory_order_relaxed)) throw std::bad_alloc();
  }
};

class Sample : public Operations {
 public:
  Sample(mx::Stream stream, std::shared_ptr<const AllAsked> asked, bool has_last)
      : Operations(stream), asked_(std::move(asked)), has_last_(has_last) {}

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override {
    auto& encoder = prepare(stream(), inputs, outputs[0]);
    outputs[1].set_data(mx::allocator::malloc(outputs[1].nbytes()));
    encoder.set_output_array(outputs[1]);
    const Activations logits(inputs[0]);
    const int64_t part = (int64_t{logits.columns()} * 4 + 63) / 64 * 64;
    std::vector<const bool*> masks;
    for (const Asked& each : *asked_)
      masks.push_back(each.mask < 0 ? nullptr
                                    : inputs[static_cast<size_t>(each.mask)].data<bool>());
    const int workers = std::min(threads(), static_cast<int>(asked_->size()));
    dispatch(encoder, Job{asked_, logits, has_last_ ? inputs[1].data<uint32_t>() : nullptr,
                          std::move(masks), temporary<char>(encoder, PARTS * part * workers), part,
                          workers, outputs[0].data<uint32_t>(), outputs[1].data<float>()});
  }

  const char* name() const override { return "CowmlxSample"; }

 private:
  std::shared_ptr<const AllAsked> asked_;
  bool has_last_;
};

/* Row, options, number of the sample, the last tokens, what is taken from logits, mirostat's bound,
 * the mask. */
using Given = std::tuple<int, Options, uint64_t, std::vector<int32_t>,
                         std::vector<std::pair<int32_t, float>>, float, std::optional<mx::array>>;

Arrays sample(const mx::array& logits, std::vector<Given> given,
              const std::optional<mx::array>& last) {
  const mx::Stream stream = cpu_stream();
  if (logits.ndim() != 2 || logits.size() == 0 || scalar_of(logits, "logits") == Scalar::UInt8)
    refuse("logits can be float32, float16 or bfloat16, (B, V)");
  const auto count = static_cast<int>(given.size());
  Arrays inputs{logits};
  if (last) {
    if (last->shape() != mx::Shape{count}) refuse("last has a token for each row that is sampled");
    inputs.push_back(plain(mx::astype(*last, mx::uint32, stream), stream));
  }
  auto asked = std::make_shared<AllAsked>();
  for (auto& [row, options, number, recent, terms, most_surprise, allowed] : given) {
    if (row < 0 || row >= logits.shape(0) || options == nullptr)
      refuse("a row and options are needed for each token");
    int mask = -1;
    if (allowed) {
      if (allowed->shape() != mx::Shape{logits.shape(1)} || allowed->dtype() != mx::bool_)
        refuse("what is allowed is bool, (V,)");
      mask = static_cast<int>(inputs.size());
      inputs.push_back(plain(*allowed, stream));
    }
    asked->push_back(
        {row, options, number, std::move(recent), std::move(terms), most_surprise, mask});
  }
  return mx::array::make_arrays(
      {{count}, {count}}, {mx::uint32, mx::float32},
      std::make_shared<Sample>(stream, std::move(asked), last.has_value()), inputs);
}

bool can_sample(const mx::array& logits) {
  return mx::default_device() == mx::Device::cpu &&
         (logits.dtype() == mx::float32 || logits.dtype() == mx::float16 ||
          logits.dtype() == mx::bfloat16);
}

using Step = std::tuple<std::string, uint64_t, float>;

Options make_options(uint64_t seed,
                     std::vector<std::pair<std::string, std::vector<double>>> samplers,
                     std::vector<std::pair<int32_t, float>> bias, bool forbids,
                     const std::vector<Step>& penalties) {
  auto made = std::make_shared<SampleOptions>();
  made->seed = seed;
  for (auto& [name, numbers] : samplers) {
    const int sampler = find_sampler(name, numbers.size());
    if (sampler < 0)
      refuse("there is no sampler \"" + name + "\" with " + std::to_string(numbers.size()) +
             " numbers");
    made->samplers.push_back({sampler, std::move(numbers)});
  }
  made->bias = std::move(bias);
  made->forbids = forbids;
  for (const auto& [name, window, number] : penalties) {
    if (name != "repetition" && name != "presence" && name != "frequency")
      refuse("there is no penalty \"" + name + "\"");
    const Penalty kind = name == "repetition" ? Penalty::Repetition
                         : name == "presence" ? Penalty::Presence
                                              : Penalty::Frequency;
    made->penalties.push_back({kind, window, number});
  }
  return made;
}

}  // namespace

void bind_sample(nb::module_& module) {
  nb::class_<SampleOptions>(module, "SampleOptions", "What a generation does with logits.");
  module.def("sample_options", make_options, nb::kw_only(), "seed"_a, "samplers"_a, "bias"_a,
             "forbids"_a, "penalties"_a,
             R"(Options for sample(), as cowmlx.generation.sampling has them.

Args:
    seed: of 64 bits.
    samplers: name and numbers of each, in order; none: the token with the highest logit is taken.
    bias: tokens and what is added to their logits.
    forbids: whether some of that is -inf.
    penalties: name, window and number of each, in order.

Raises:
    ValueError: there is no such sampler or penalty, or a sampler has too few numbers.)");
  module.def("can_sample", can_sample, "logits"_a,
             "Whether sample() takes logits of this type, and the stream in use is a CPU's.");
  module.def("sample", sample, "logits"_a, "given"_a, "last"_a = nb::none(),
             R"(A token for each row that is asked for, (N,) uint32, and its surprise, (N,) float32.

The surprise is in bits, among the tokens that mirostat leaves; 0 without.

Args:
    logits: (B, V).
    given: of each token its row, options, the number of the sample, the last tokens, as many as
        penalties look back on, tokens with what is taken from their logits, each once, mirostat's
        bound in bits, and (V,) bool which tokens are allowed, or None.
    last: (N,) tokens behind these last ones, perhaps still computing; None: nothing is behind them.)");
}

}  // namespace cowmlx
