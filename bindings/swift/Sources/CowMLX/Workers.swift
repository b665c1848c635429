import CCowMLX
import Foundation

/// Threads for calls that wait for the library. Dispatch's threads would not do: on Linux there are as many as
/// processors, and Swift's tasks run on the same ones.
///
/// There are as many threads as calls wait, up to a limit. A thread that has had nothing to do for some seconds ends.
final class Workers: @unchecked Sendable {
  /// For calls that end soon.
  static let calls = Workers(limit: 64)
  /// For calls that may take as long as their host likes: a thread for each.
  static let long = Workers(limit: .max)
  /// For frees, in their order: they end running calls, so they never wait for those to leave a thread.
  static let frees = Workers(limit: 1)

  typealias Job = @Sendable () -> Void

  private let limit: Int
  private let changed = NSCondition()
  private var jobs: [Job] = []
  private var count = 0  // of threads
  private var idle = 0  // of those that wait for a job
  private static let patience: TimeInterval = 5

  init(limit: Int) { self.limit = limit }

  /// Runs a job on one of the threads; on this one only if the system gives none.
  func run(_ job: @escaping Job) {
    if !accept(job), let job = take(waits: false) { job() }
  }

  /// Whether there is a thread for the jobs.
  private func accept(_ job: @escaping Job) -> Bool {
    changed.lock()
    defer { changed.unlock() }
    jobs.append(job)
    if jobs.count <= idle {
      changed.signal()
    } else if count < limit {
      if start() { count += 1 }
    }
    return count > 0
  }

  private func start() -> Bool {
    let workers = Unmanaged.passRetained(self)
    let hasStarted = cow_mlx_start_thread(
      { workers in Unmanaged<Workers>.fromOpaque(workers!).takeRetainedValue().work() },
      workers.toOpaque())
    if !hasStarted { workers.release() }
    return hasStarted
  }

  private func work() {
    while let job = take(waits: true) {
      #if canImport(ObjectiveC)
        autoreleasepool(invoking: job)
      #else
        job()
      #endif
    }
  }

  /// The next job; nil ends the thread that waits for one.
  private func take(waits: Bool) -> Job? {
    changed.lock()
    defer { changed.unlock() }
    while jobs.isEmpty {
      guard waits else { return nil }
      idle += 1
      let isSignaled = changed.wait(until: Date(timeIntervalSinceNow: Self.patience))
      idle -= 1
      if !isSignaled, jobs.isEmpty {
        count -= 1
        return nil
      }
    }
    return jobs.removeFirst()
  }
}
