#include "row_batch.h"

#include <algorithm>
#include <iterator>

namespace cowmlx {
namespace {

constexpr size_t MOST_TASKS = 16;      /* workers stay awake while so many are prepared */
constexpr size_t MOST_BYTES = 8 << 20; /* of outputs: a turn looks at the clock after them */
constexpr int MOST_THREADS = 4;        /* that need rows: more may wait for nothing better */

thread_local RowBatch* batch = nullptr;

}  // namespace

RowBatch::RowBatch() { batch = this; }

RowBatch::~RowBatch() { batch = nullptr; }

RowBatch* RowBatch::current() { return batch; }

bool RowBatch::has_rows(const mx::array& array) const {
  const auto found = written_.find(array.buffer().ptr());
  if (found == written_.end()) return true;
  if (array.ndim() == 0 || array.shape(0) != rows_) return false;
  const auto item = static_cast<int64_t>(array.itemsize());
  int64_t reach = item;
  for (int axis = 1; axis < static_cast<int>(array.ndim()); axis++) {
    if (array.strides(axis) < 0) return false;
    reach += (array.shape(axis) - 1) * array.strides(axis) * item;
  }
  const int64_t begin = array.data<char>() - found->second.data;
  const int64_t pitch = found->second.pitch;
  return array.strides(0) * item == pitch && begin >= 0 && begin + reach <= pitch;
}

bool RowBatch::takes(int64_t rows, const Reads& reads) {
  if (rows < int64_t{BATCH_ROWS} * std::min(threads(), MOST_THREADS)) return false;
  if (rows != rows_) run();
  rows_ = rows;
  return std::ranges::all_of(reads.rows, [&](const mx::array* one) { return has_rows(*one); }) &&
         std::ranges::all_of(reads.whole, [&](const mx::array* one) { return is_free(*one); });
}

void RowBatch::add(const Arrays& outputs, Task task) {
  for (const mx::array& output : outputs) {
    written_[output.buffer().ptr()] = {output.data<char>(),
                                       static_cast<int64_t>(output.nbytes()) / rows_};
    bytes_ += output.nbytes();
  }
  tasks_.push_back(std::move(task));
  is_full_ = tasks_.size() == MOST_TASKS || bytes_ >= MOST_BYTES;
}

void RowBatch::run() {
  is_full_ = false;
  bytes_ = 0;
  if (tasks_.size() == 1) {
    tasks_[0].whole(tasks_[0].job.get());
  } else if (!tasks_.empty()) {
    const int64_t chunks = (rows_ + BATCH_ROWS - 1) / BATCH_ROWS;
    const int workers = std::ranges::min_element(tasks_, {}, &Task::workers)->workers;
    share(static_cast<int>(chunks), workers, [&](int index, int worker) {
      const int64_t begin = int64_t{index} * BATCH_ROWS, end = std::min(begin + BATCH_ROWS, rows_);
      for (const Task& task : tasks_) task.rows(task.job.get(), begin, end, worker);
    });
  }
  tasks_.clear();
  written_.clear();
  kept_.clear();
}

void RowBatch::keep(Arrays& read, Arrays& temporaries) {
  if (!tasks_.empty()) {
    std::ranges::move(read, std::back_inserter(kept_));
    std::ranges::move(temporaries, std::back_inserter(kept_));
  }
  read.clear();
  temporaries.clear();
  if (is_full_) run();
}

}  // namespace cowmlx
