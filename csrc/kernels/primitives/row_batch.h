/* Operations that compute rows from the same rows of their inputs, one after the other: each thread
 * goes through all of them for some rows, and does not wait for the others after each. */
#pragma once

#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "recording.h"

namespace cowmlx {

constexpr int BATCH_ROWS = 16; /* that a thread computes at a time */

/* Operations that may wait in a batch. */
inline bool may_wait(const mx::Primitive& primitive) {
  return is(primitive, "CowmlxElementwise") || is(primitive, "CowmlxMatmul") ||
         is(primitive, "CowmlxRowsProduct");
}

/* What an operation reads. */
struct Reads {
  std::vector<const mx::array*> rows;  /* row by row, as it writes */
  std::vector<const mx::array*> whole; /* the same in each row */
};

/* Waiting operations. They run when an operation reads other rows of their results, or when there
 * are too many. */
class RowBatch {
 public:
  /* An operation that waits. */
  struct Task {
    std::shared_ptr<const void> job;
    void (*rows)(const void* job, int64_t begin, int64_t end, int worker);
    void (*whole)(const void* job); /* computes all rows, if nothing else waits */
    int workers;                    /* for which it has memory */
  };

  RowBatch();
  ~RowBatch(); /* what waits is dropped */
  RowBatch(const RowBatch&) = delete;
  RowBatch& operator=(const RowBatch&) = delete;

  /* That of this thread; null: none. */
  static RowBatch* current();

  /* Whether an operation may wait: it has enough rows for all threads, and of the results of
   * waiting operations it reads the same rows alone. Runs these first if their number of rows
   * differs. */
  bool takes(int64_t rows, const Reads& reads);

  void add(const Arrays& outputs, Task task);

  /* Compute all that waits. */
  void run();

  /* Keep what waiting operations read, and their temporary arrays. Runs a batch that is full. */
  void keep(Arrays& read, Arrays& temporaries);

 private:
  struct Written {
    const char* data;
    int64_t pitch; /* bytes of a row */
  };

  bool has_rows(const mx::array& array) const;
  bool is_free(const mx::array& array) const { return !written_.contains(array.buffer().ptr()); }

  int64_t rows_ = 0;
  size_t bytes_ = 0; /* of what waiting operations write */
  bool is_full_ = false;
  std::vector<Task> tasks_;
  std::unordered_map<const void*, Written> written_; /* by their buffers */
  Arrays kept_;
};

/* Let an operation wait in this thread's batch, or run it. `job`: computes all rows when it is
 * called, and some by its function `rows`. */
template <class Job>
void dispatch_rows(mx::cpu::CommandEncoder& encoder, const Reads& reads, const Arrays& outputs,
                   int64_t rows, Job job) {
  RowBatch* batch = RowBatch::current();
  if (batch == nullptr) return dispatch(encoder, std::move(job));
  if (rows == 0 || !batch->takes(rows, reads)) {
    batch->run();
    return job();
  }
  const int workers = job.workers;
  batch->add(outputs, {std::make_shared<const Job>(std::move(job)),
                       [](const void* own, int64_t begin, int64_t end, int worker) {
                         static_cast<const Job*>(own)->rows(begin, end, worker);
                       },
                       [](const void* own) { (*static_cast<const Job*>(own))(); }, workers});
}

}  // namespace cowmlx
