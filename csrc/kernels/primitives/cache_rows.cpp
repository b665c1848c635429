/* The rows of a batch's keys and values: written, moved and made room for where they lie. mlx would
 * copy all rows of a buffer to write one that it reads, and write its zeros twice. */
#include <cstring>

#include "operation.h"

namespace cowmlx {
namespace {

constexpr int64_t LARGE = 1 << 19; /* bytes from which on more than one thread writes them */

/* A change of buffers (R, H, C, D), of any types, with the same R and C. */
struct Change {
  int rows, columns; /* of the results; more are zeros */
  int used;          /* columns that are kept of each row, zeros behind them */
  int row = -1;      /* the one that is written: with parts (1, H, S, D), or with `source` */
  int source = -1;
  int taken = -1; /* before that, so many columns of `row` are copied to separate results */

  bool operator==(const Change&) const = default;
};

/* One buffer. Lines are of D numbers. */
struct Buffer {
  Lines from;
  int heads, old_rows, old_columns;
  bool is_new = false; /* else `to` has the rows already */
  std::optional<Lines> part;
  int length = 0; /* columns of the part */
  char* to = nullptr;
  char* taken = nullptr;

  explicit Buffer(const mx::array& array)
      : from(array), heads(array.shape(1)), old_rows(array.shape(0)), old_columns(array.shape(2)) {}

  int64_t line(int row, int head, int columns) const {
    return (int64_t{row} * heads + head) * columns;
  }

  /* One head of a row of the results. */
  void write(const Change& change, int row, int head) const {
    char* begin = to + line(row, head, change.columns) * from.bytes();
    int filled = 0;
    if (row == change.row && part) {
      filled = length;
      part->copy(int64_t{head} * filled, int64_t{head + 1} * filled, begin);
    } else if (row == change.row) {
      filled = change.used;
      std::memcpy(begin, to + line(change.source, head, change.columns) * from.bytes(),
                  static_cast<size_t>(filled * from.bytes()));
    } else if (row < old_rows) {
      filled = change.used;
      const int64_t first = line(row, head, old_columns);
      from.copy(first, first + filled, begin);
    }
    std::memset(begin + filled * from.bytes(), 0,
                static_cast<size_t>((change.columns - filled) * from.bytes()));
  }

  void run(const Change& change) const {
    for (int head = 0; taken != nullptr && head < heads; head++)
      std::memcpy(taken + int64_t{head} * change.taken * from.bytes(),
                  to + line(change.row, head, change.columns) * from.bytes(),
                  static_cast<size_t>(change.taken * from.bytes()));
    const bool writes = part || change.source >= 0;
    const int first = is_new ? 0 : change.row;
    const int tasks = (is_new ? change.rows : static_cast<int>(writes)) * heads;
    const auto task = [&](int at) { write(change, first + at / heads, at % heads); };
    if (int64_t{tasks} * change.columns * from.bytes() >= LARGE)
      parallel(tasks, task);
    else
      for (int at = 0; at < tasks; at++) task(at);
  }
};

class CacheRows : public Operations {
 public:
  /* `buffers`: how many; behind them the inputs have `parts` more. */
  CacheRows(mx::Stream stream, Change change, size_t buffers, size_t parts)
      : Operations(stream), change_(change), buffers_(buffers), parts_(parts) {}

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override {
    Takeover takeover(inputs, outputs);
    auto& encoder = mx::cpu::get_command_encoder(stream());
    auto buffers = std::make_shared<std::vector<Buffer>>();
    for (size_t i = 0; i < buffers_; i++) {
      const mx::array& from = inputs[i];
      Buffer buffer(from);
      buffer.is_new = from.shape() != outputs[i].shape();
      if (parts_ > 0) {
        buffer.part.emplace(inputs[buffers_ + i]);
        buffer.length = inputs[buffers_ + i].shape(2);
      }
      if (buffer.is_new)
        takeover.make(i);
      else
        takeover.buffer(i, i);
      buffer.to = outputs[i].data<char>();
      if (change_.taken >= 0) {
        takeover.make(buffers_ + i);
        buffer.taken = outputs[buffers_ + i].data<char>();
      }
      buffers->push_back(std::move(buffer));
    }
    auto copies = std::make_shared<std::vector<Copy>>(takeover.copies());
    takeover.finish();
    auto memory = std::make_shared<std::vector<Memory>>(takeover.memory());
    dispatch(encoder, [change = change_, buffers, copies, memory] {
      for (const Copy& copy : *copies) copy.run();
      for (const Buffer& buffer : *buffers) buffer.run(change);
    });
  }

  const char* name() const override { return "CowmlxCacheRows"; }

  bool is_equivalent(const mx::Primitive& other) const override {
    const auto& same = static_cast<const CacheRows&>(other);
    return change_ == same.change_ && buffers_ == same.buffers_ && parts_ == same.parts_;
  }

 private:
  Change change_;
  size_t buffers_, parts_;
};

void check(const Arrays& buffers, const Arrays& parts, const Change& change) {
  if (buffers.empty() || (!parts.empty() && parts.size() != buffers.size()))
    refuse("buffers and parts are not pairs");
  const int rows = buffers[0].ndim() == 4 ? buffers[0].shape(0) : 0;
  const int columns = buffers[0].ndim() == 4 ? buffers[0].shape(2) : 0;
  const bool keeps = change.rows >= 0 && change.columns >= columns && change.used >= 0 &&
                     change.used <= columns && change.taken <= columns;
  if (!keeps || change.row >= change.rows || change.source >= std::min(rows, change.rows))
    refuse("buffers have no such rows or columns");
  for (size_t i = 0; i < buffers.size(); i++) {
    const mx::array& buffer = buffers[i];
    if (buffer.ndim() != 4 || buffer.shape(0) != rows || buffer.shape(2) != columns)
      refuse("buffers have other axes, rows or columns than the first");
    if (parts.empty()) continue;
    const mx::array& part = parts[i];
    if (change.row < 0 || part.ndim() != 4 || part.shape(0) != 1 ||
        part.shape(1) != buffer.shape(1) || part.shape(2) > change.columns ||
        part.shape(3) != buffer.shape(3) || part.dtype() != buffer.dtype())
      refuse("a part is no row of its buffer");
  }
}

Arrays changed(const Arrays& buffers, const Arrays& parts, const Change& change) {
  check(buffers, parts, change);
  Arrays inputs = buffers;
  inputs.insert(inputs.end(), parts.begin(), parts.end());
  std::vector<mx::Shape> shapes;
  std::vector<mx::Dtype> dtypes;
  for (const mx::array& buffer : buffers) {
    shapes.push_back({change.rows, buffer.shape(1), change.columns, buffer.shape(3)});
    dtypes.push_back(buffer.dtype());
  }
  if (change.taken >= 0)
    for (const mx::array& buffer : buffers) {
      shapes.push_back({1, buffer.shape(1), change.taken, buffer.shape(3)});
      dtypes.push_back(buffer.dtype());
    }
  auto primitive = std::make_shared<CacheRows>(cpu_stream(), change, buffers.size(), parts.size());
  return mx::array::make_arrays(std::move(shapes), dtypes, primitive, inputs);
}

}  // namespace

void bind_cache_rows(nb::module_& module) {
  module.def(
      "put_row",
      [](const Arrays& buffers, const Arrays& parts, int row, int rows, int columns, int used) {
        return changed(buffers, parts, {rows, columns, used, row});
      },
      "buffers"_a, "parts"_a, "row"_a, "rows"_a, "columns"_a, "used"_a,
      R"(Buffers (R, H, C, D) with parts (1, H, S, D) in a row, and zeros behind these.

Nothing else is written where `rows` is R and `columns` is C, and nobody else has the buffers.

Args:
    buffers: of any types, with the same R and C.
    parts: one for each; none: the buffers get other sizes alone.
    row: that is written; -1 without parts.
    rows, columns: of the results.
    used: columns of the other rows that are kept.

Raises:
    ValueError: shapes or types that do not fit.)");
  module.def(
      "take_row",
      [](const Arrays& buffers, int row, int taken, int last, int used) {
        if (buffers.empty() || buffers[0].ndim() != 4) refuse("there are no buffers (R, H, C, D)");
        const int rows = buffers[0].shape(0), columns = buffers[0].shape(2);
        if (row < 0 || taken < -1) refuse("there is no such row");
        Arrays made =
            changed(buffers, {}, {rows, columns, used, row, last == row ? -1 : last, taken});
        const auto middle = made.begin() + static_cast<int64_t>(buffers.size());
        return std::make_pair(Arrays(made.begin(), middle), Arrays(middle, made.end()));
      },
      "buffers"_a, "row"_a, "taken"_a, "last"_a, "used"_a,
      R"(Buffers (R, H, C, D) where the last row has taken a row's place, and that row.

Args:
    buffers: of any types, with the same R and C.
    row: that leaves.
    taken: its columns; -1: it is not wanted.
    last: the row that is copied to its place, and zeros behind that; the row itself: none is.
    used: columns of the last row.

Returns:
    The buffers, and parts (1, H, taken, D), or none.

Raises:
    ValueError: there are no such rows or columns.)");
}

}  // namespace cowmlx
