/* Operations that a caller starts on a stream, one after the other, without mlx's graphs. */
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <iterator>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "mlx/scheduler.h"
#include "mlx/stream.h"
#include "computing.h"
#include "operation.h"

namespace cowmlx {

/* Keeps what a stream's tasks read and write until all have run, also where one could not be
 * started. */
class UnderWay {
 public:
  UnderWay(mx::Stream stream, Places places)
      : stream_(stream),
        encoder_(mx::cpu::get_command_encoder(stream)),
        kept_(new Kept{std::move(places)}), /* make_unique() of it needs Clang 16 */
        done_(std::make_shared<std::atomic<int>>(0)) {}

  ~UnderWay() {
    kept_->temporaries.swap(encoder_.temporaries());
    for (int tries = 0; is_waiting_; tries++) {
      try {
        wait();
      } catch (const std::exception&) { /* no memory for the last task */
        if (tries == MOST_TRIES) {
          kept_.release(); /* leaked: the tasks may still use it */
          return;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
  }

  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;

  /* All other arrays of the recording, kept as long. */
  Places& places() { return kept_->places; }

  /* Inputs and outputs of the next operation, and then of the last one. It may compute in the
   * memory of inputs that nothing else holds. */
  std::vector<mx::array>& read() { return kept_->read; }
  std::vector<mx::array>& made() { return kept_->made; }

  void start(mx::Primitive& primitive) {
    primitive.eval_cpu(read(), made());
    keep(read());
    keep(encoder_.temporaries());
  }

  /* Wait for the tasks. Throws what one of them has thrown. */
  void finish() {
    wait();
    mx::scheduler::check_error(stream_);
  }

 private:
  static constexpr int MOST_TRIES = 1000;

  struct Kept {
    Places places;
    std::vector<mx::array> read{}, made{}, temporaries{}, others{};
  };

  void keep(std::vector<mx::array>& arrays) {
    std::ranges::move(arrays, std::back_inserter(kept_->others));
    arrays.clear();
  }

  void wait() {
    encoder_.dispatch([done = done_] {
      done->store(1, std::memory_order_release);
      done->notify_one();
    });
    done_->wait(0, std::memory_order_acquire);
    is_waiting_ = false;
  }

  mx::Stream stream_;
  mx::cpu::CommandEncoder& encoder_;
  std::unique_ptr<Kept> kept_;
  std::shared_ptr<std::atomic<int>> done_;
  bool is_waiting_ = true;
};

}  // namespace cowmlx
