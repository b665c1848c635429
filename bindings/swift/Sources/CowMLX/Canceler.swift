import Dispatch

/// Cancels a call. A cancel that comes before the call has begun does nothing, so it is repeated until
/// the call has ended; and none comes later, since it would end the next call.
final class Canceler: Sendable {
  private let request: @Sendable () -> Void
  private let hasEnded = Locked(false)

  /// - Parameter request: asks the library to cancel; never blocks.
  init(_ request: @escaping @Sendable () -> Void) { self.request = request }

  /// The call has ended.
  func end() { hasEnded.withLock { $0 = true } }

  func cancel() {
    let isOver = hasEnded.withLock { hasEnded in
      if !hasEnded { request() }
      return hasEnded
    }
    if !isOver {
      callQueue.asyncAfter(deadline: .now() + .milliseconds(10)) { self.cancel() }
    }
  }
}
