import CCowMLX
import Dispatch

/// The calls on one object that their tasks cancel.
///
/// C cancels every call that runs on an object. So a call is cancelled only while it runs, and while no other call of
/// this package runs there.
final class Canceler: Sendable {
  private let request: @Sendable () -> Void
  private let running = Locked(0)

  /// - Parameter request: asks the library to cancel; never waits.
  init(_ request: @escaping @Sendable () -> Void) { self.request = request }

  /// One call, which a cancel ends, also before it has begun.
  final class Call: Sendable {
    private enum State { case waits, runs, isCanceled, hasEnded }

    private let canceler: Canceler
    private let state = Locked(State.waits)

    fileprivate init(_ canceler: Canceler) { self.canceler = canceler }

    /// Makes the call.
    func run<R>(_ body: () throws(CowMLXError) -> R) throws(CowMLXError) -> R {
      guard begin() else {
        throw .refused(
          COW_MLX_ECANCELED, "Task.cancel", "canceled", "the call was canceled before it began")
      }
      defer { end() }
      return try body()
    }

    private func begin() -> Bool {
      canceler.running.withLock { running in
        state.withLock { state in
          guard state == .waits else { return false }
          state = .runs
          running += 1
          return true
        }
      }
    }

    private func end() {
      canceler.running.withLock { running in
        running -= 1
        state.withLock { $0 = .hasEnded }
      }
    }

    /// Cancels the call; never waits. The library may not have begun the call yet, which then runs on: the request
    /// is repeated until the call has ended.
    func cancel() {
      let isOver = canceler.running.withLock { running in
        state.withLock { state in
          if state == .waits { state = .isCanceled }
          if state == .runs, running == 1 { canceler.request() }
          return state != .runs
        }
      }
      if !isOver {
        DispatchQueue.global().asyncAfter(deadline: .now() + .milliseconds(10)) { self.cancel() }
      }
    }
  }

  func call() -> Call { Call(self) }

  /// Makes a call that waits and that a cancel of its task ends.
  func run<R: Sendable>(
    _ body: @escaping @Sendable () throws(CowMLXError) -> R
  ) async throws -> R {
    try Task.checkCancellation()
    let call = call()
    do {
      return try await withTaskCancellationHandler {
        try await blocking(on: .long) { () throws(CowMLXError) in try call.run(body) }
      } onCancel: {
        call.cancel()
      }
    } catch CowMLXError.canceled where Task.isCancelled {
      throw CancellationError()
    }
  }
}
