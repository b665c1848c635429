/* Matrices by blocks of 16 rows, made of arrays or read from files. */
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_set>

#ifdef __linux__
#include <sys/mman.h>
#endif

#include "operation.h"
#include "simd/shuffle.h"

namespace cowmlx {
namespace {

/* Ask the system to lay memory that is not written yet in large pages, where it has them:
 * walking the tables of 4 KiB pages takes a part of the time that reading weights takes. A hint,
 * which changes no content and cannot fail. */
#ifdef MADV_HUGEPAGE
void in_large_pages(void* begin, size_t bytes) {
  constexpr uintptr_t LARGE = uintptr_t{1} << 21; /* of x86-64, and of ARM with pages of 4 KiB */
  const auto first = (reinterpret_cast<uintptr_t>(begin) + LARGE - 1) / LARGE * LARGE;
  const auto end = (reinterpret_cast<uintptr_t>(begin) + bytes) / LARGE * LARGE;
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
}
#else
void in_large_pages(void*, size_t) {} /* macOS has them for itself alone */
#endif

/* Memory that packed matrices share, so that large pages can hold them: most matrices are smaller
 * than a large page. Each begins at a cache line. The memory is freed with the last matrix. */
class Arena {
 public:
  /* The place of so many bytes; none once the arena has its memory. */
  std::optional<size_t> add(size_t bytes) {
    const std::lock_guard<std::mutex> held(lock_);
    if (memory_.has_value() || front() == 0) return std::nullopt;
    const size_t at = size_;
    size_ += (front() + bytes + LINE - 1) / LINE * LINE;
    return at;
  }

  size_t size() const { return size_; }

  /* Give an array the memory at a place. */
  void give(mx::array& out, size_t at) {
    const std::lock_guard<std::mutex> held(lock_);
    if (!memory_.has_value()) {
      const size_t bytes = size_ + 2 * LINE;
      memory_.emplace(mx::allocator::malloc(bytes), mx::Shape{0}, mx::uint8);
      in_large_pages(memory_->data<void>(), bytes);
    }
    const size_t bytes = out.nbytes();
    const auto begin = reinterpret_cast<uintptr_t>(memory_->data<char>());
    const uintptr_t data = (begin + front() + LINE - 1) / LINE * LINE + at;
    auto* buffer = reinterpret_cast<void*>(data - front());
    std::memcpy(buffer, &bytes, front());
    auto end = [memory = memory_->data_shared_ptr()](mx::allocator::Buffer) {};
    out.set_data(mx::allocator::Data(mx::allocator::Buffer(buffer), std::move(end)));
  }

 private:
  static constexpr size_t LINE = 64;

  std::mutex lock_;
  size_t size_ = 0;
  std::optional<mx::array> memory_;
};

/* A matrix's place in an arena. An evaluation that failed may be repeated there. */
class Place {
 public:
  Place(std::shared_ptr<Arena> arena, size_t bytes) : arena_(std::move(arena)) {
    if (arena_ != nullptr) at_ = arena_->add(bytes);
  }

  void give(mx::array& out) {
    const auto last = last_.lock();
    if (at_.has_value() && (last == nullptr || last == out.data_shared_ptr())) {
      arena_->give(out, *at_);
      last_ = out.data_shared_ptr();
      return;
    }
    out.set_data(mx::allocator::malloc(out.nbytes()));
    in_large_pages(out.data<void>(), out.nbytes());
  }

 private:
  std::shared_ptr<Arena> arena_;
  std::optional<size_t> at_;            /* none: separate memory */
  std::weak_ptr<mx::array::Data> last_; /* what lies there */
};

/* A vector that every processor has registers for, and two vectors' words in turn: those of their
 * first halves, and of their last ones. */
template <class Word>
struct Vector;

template <>
struct Vector<uint16_t> {
  using Places [[gnu::vector_size(16)]] = uint16_t;
  static Places first(Places a, Places b) { return COWMLX_SHUFFLE(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
  static Places last(Places a, Places b) {
    return COWMLX_SHUFFLE(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  }
};

template <>
struct Vector<uint32_t> {
  using Places [[gnu::vector_size(16)]] = uint32_t;
  static Places first(Places a, Places b) { return COWMLX_SHUFFLE(a, b, 0, 4, 1, 5); }
  static Places last(Places a, Places b) { return COWMLX_SHUFFLE(a, b, 2, 6, 3, 7); }
};

/* Write as many rows as a vector has words word after word. A round moves the highest bit of a
 * row's number behind the bits of its words' places, and all bits in front of it on by one. */
template <class Word>
void transpose_square(const Word* rows, int64_t pitch, Word* out) {
  using V = Vector<Word>;
  constexpr int N = 16 / sizeof(Word);
  typename V::Places a[N], b[N];
  for (int i = 0; i < N; i++) std::memcpy(&a[i], rows + i * pitch, sizeof a[i]);
  for (int done = 1; done < N; done *= 2) {
    for (int i = 0; i < N / 2; i++) {
      b[2 * i] = V::first(a[i], a[i + N / 2]);
      b[2 * i + 1] = V::last(a[i], a[i + N / 2]);
    }
    std::memcpy(a, b, sizeof a);
  }
  for (int i = 0; i < N; i++) std::memcpy(out + i * LANES, &a[i], sizeof a[i]);
}

/* Write 16 rows of words word after word, beside each other. */
template <class Word>
void transpose(const Word* rows, int words, Word* out) {
  int word = 0;
  if constexpr (sizeof(Word) > 1) {
    constexpr int N = 16 / sizeof(Word);
    for (; word + N <= words; word += N)
      for (int lane = 0; lane < LANES; lane += N)
        transpose_square(rows + lane * int64_t{words} + word, words,
                         out + word * int64_t{LANES} + lane);
  }
  for (; word < words; word++)
    for (int lane = 0; lane < LANES; lane++)
      out[word * int64_t{LANES} + lane] = rows[lane * int64_t{words} + word];
}

/* The same with fewer rows in the last block. */
template <class Word>
void transpose_some(const Word* rows, int count, int words, Word* out) {
  for (int word = 0; word < words; word++)
    for (int lane = 0; lane < LANES; lane++)
      out[word * int64_t{LANES} + lane] =
          lane < count ? rows[lane * int64_t{words} + word] : Word{0};
}

/* Pack rows, the first of a block and all behind it, which lie behind each other. */
template <class Word>
void pack_rows(const void* from, void* out, int rows, int words) {
  const auto* next = static_cast<const Word*>(from);
  auto* block = static_cast<Word*>(out);
  const int64_t step = int64_t{LANES} * words;
  for (; rows >= LANES; rows -= LANES, next += step, block += step) transpose(next, words, block);
  if (rows > 0) transpose_some(next, rows, words, block);
}

void pack_rows(const void* from, void* out, int rows, int words, size_t size) {
  if (size == 4) pack_rows<uint32_t>(from, out, rows, words);
  if (size == 2) pack_rows<uint16_t>(from, out, rows, words);
  if (size == 1) pack_rows<uint8_t>(from, out, rows, words);
}

int blocks_of(int rows) { return (rows + LANES - 1) / LANES; }

class Pack : public Operation {
 public:
  Pack(mx::Stream stream, Place place) : Operation(stream), place_(std::move(place)) {}

  void eval_cpu(const Arrays& inputs, mx::array& out) override {
    place_.give(out);
    auto& encoder = mx::cpu::get_command_encoder(stream());
    encoder.set_input_array(inputs[0]);
    encoder.set_output_array(out);
    dispatch(encoder,
             [from = inputs[0].data<void>(), to = out.data<void>(), rows = inputs[0].shape(0),
              words = inputs[0].shape(1), size = inputs[0].itemsize()] {
               const size_t bytes = static_cast<size_t>(LANES) * static_cast<size_t>(words) * size;
               parallel(blocks_of(rows), [&](int block) {
                 const size_t at = static_cast<size_t>(block) * bytes;
                 pack_rows(static_cast<const char*>(from) + at, static_cast<char*>(to) + at,
                           std::min(LANES, rows - block * LANES), words, size);
               });
             });
  }

  const char* name() const override { return "CowmlxPack"; }

 private:
  Place place_;
};

/* A file that is open as long as something is to be read from it. */
class StoredFile {
 public:
  explicit StoredFile(const std::string& path)
      : descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor_ < 0) throw std::runtime_error("[read] cannot open " + path);
  }
  ~StoredFile() { close(descriptor_); }
  StoredFile(const StoredFile&) = delete;
  StoredFile& operator=(const StoredFile&) = delete;

  /* Whether there were so many bytes. */
  bool read(char* to, size_t bytes, int64_t from) const {
    while (bytes > 0) {
      const ssize_t count = pread(descriptor_, to, bytes, static_cast<off_t>(from));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      to += count;
      from += count;
      bytes -= static_cast<size_t>(count);
    }
    return true;
  }

 private:
  int descriptor_;
};

/* A matrix of a file, which is read some blocks at a time, so that there is no copy of it. */
class PackStored : public Operation {
 public:
  PackStored(mx::Stream stream, std::shared_ptr<StoredFile> file, int64_t offset, int rows,
             Place place)
      : Operation(stream),
        file_(std::move(file)),
        offset_(offset),
        rows_(rows),
        place_(std::move(place)) {}

  /* Read at once: what a task throws would be lost. */
  void eval_cpu(const Arrays&, mx::array& out) override {
    place_.give(out);
    const size_t size = out.itemsize();
    const int words = out.shape(1);
    const int64_t row = static_cast<int64_t>(words) * static_cast<int64_t>(size);
    const int blocks = static_cast<int>(std::max<int64_t>(1, READ_BYTES / (row * LANES)));
    const int some = blocks * LANES, count = (rows_ + some - 1) / some, workers = threads();
    const auto room = static_cast<size_t>(row) * static_cast<size_t>(std::min(some, rows_));
    const std::unique_ptr<char[]> scratch(new char[room * static_cast<size_t>(workers)]);
    std::atomic<bool> complete{true};
    auto* to = static_cast<char*>(out.data<void>());
    share(count, workers, [&](int index, int worker) {
      const int first = index * some, rows = std::min(some, rows_ - first);
      char* read = scratch.get() + room * static_cast<size_t>(worker);
      if (!file_->read(read, static_cast<size_t>(row * rows), offset_ + row * first))
        complete.store(false, std::memory_order_relaxed);
      else
        pack_rows(read, to + row * first, rows, words, size);
    });
    if (!complete.load()) throw std::runtime_error("[read] the file ends within a matrix");
  }

  const char* name() const override { return "CowmlxPackStored"; }

 private:
  static constexpr int64_t READ_BYTES = 256 << 10; /* that stay in a core's cache */
  std::shared_ptr<StoredFile> file_;
  int64_t offset_;
  int rows_;
  Place place_;
};

/* The shape of a matrix (rows, words) in blocks, and its place. */
std::pair<mx::Shape, Place> blocks_in(const std::shared_ptr<Arena>& arena, int rows, int words,
                                      mx::Dtype dtype) {
  mx::Shape shape{blocks_of(rows), words, LANES};
  const size_t numbers = static_cast<size_t>(shape[0]) * static_cast<size_t>(words) * LANES;
  return {std::move(shape), Place(arena, numbers * mx::size_of(dtype))};
}

mx::array pack_stored(const std::shared_ptr<StoredFile>& file, int64_t offset, int rows, int words,
                      mx::Dtype dtype, const std::shared_ptr<Arena>& arena) {
  if (rows < 1 || words < 1 || offset < 0 || mx::size_of(dtype) > 4)
    refuse("pack_stored takes a matrix of numbers of at most 32 bits, not empty");
  auto [shape, place] = blocks_in(arena, rows, words, dtype);
  auto packs = std::make_shared<PackStored>(cpu_stream(), file, offset, rows, std::move(place));
  return mx::array(std::move(shape), dtype, std::move(packs), {});
}

mx::array pack(const mx::array& matrix, const std::shared_ptr<Arena>& arena) {
  const mx::Stream stream = cpu_stream();
  if (matrix.ndim() != 2 || matrix.size() == 0 || matrix.itemsize() > 4)
    refuse("pack takes a matrix of numbers of at most 32 bits, not empty");
  auto [shape, place] = blocks_in(arena, matrix.shape(0), matrix.shape(1), matrix.dtype());
  return mx::array(std::move(shape), matrix.dtype(),
                   std::make_shared<Pack>(stream, std::move(place)), {plain(matrix, stream)});
}

/* Whether mlx reads an array of at least so many bytes from a file to compute others. */
bool loads(const std::vector<mx::array>& arrays, size_t bytes) {
  std::vector<mx::array> left = arrays;
  std::unordered_set<std::uintptr_t> seen;
  while (!left.empty()) {
    const mx::array array = std::move(left.back());
    left.pop_back();
    if (array.status() != mx::array::Status::unscheduled || !array.has_primitive() ||
        !seen.insert(array.id()).second)
      continue;
    if (array.nbytes() >= bytes && std::strcmp(array.primitive().name(), "Load") == 0) return true;
    left.insert(left.end(), array.inputs().begin(), array.inputs().end());
  }
  return false;
}

}  // namespace

void bind_pack(nb::module_& module) {
  nb::class_<Arena>(module, "Arena",
                    "Memory that packed matrices share, freed with the last of them.")
      .def(nb::init<>())
      .def_prop_ro("size", &Arena::size, "Bytes that are to lie there.");
  module.def("pack", pack, "matrix"_a, "arena"_a = nb::none(),
             R"(A matrix (N, W) by blocks of 16 rows, as products read it: (blocks, W, 16).

Weights as mlx packs them, dense ones, scales and biases are all packed so. The last block is filled
up with zeros. The matrix lies in the arena's memory, unless another one there is computed already.

Raises:
    ValueError: it is no matrix, is empty, or of numbers wider than 32 bits.)");
  nb::class_<StoredFile>(module, "StoredFile", "A file that matrices are read from.")
      .def(nb::init<const std::string&>(), "path"_a);
  module.def("pack_stored", pack_stored, "file"_a, "offset"_a, "rows"_a, "words"_a, "dtype"_a,
             "arena"_a = nb::none(),
             R"(What pack() makes of a matrix (rows, words) that lies in a file, lazily.

No other copy of the matrix is made.

Raises:
    ValueError: it is empty, or of numbers wider than 32 bits.
    RuntimeError: when it is computed: the file ends before it does.)");
  module.def("loads", loads, "arrays"_a, "bytes"_a,
             R"(Whether mlx must read an array of so many bytes from a file to compute others.)");
}

}  // namespace cowmlx
