import CCowMLX

/// A generation or chat that runs on a context.
protocol Running: AnyObject, Sendable {
  /// Whether its host has left it, before its end.
  var isAbandoned: Bool { get }
  /// Waits for the end of one that is abandoned.
  func settle() async
  /// Wakes the task that waits for the next result.
  func interrupt()
}

extension Context {
  /// Makes a call on the context that waits.
  func call<R: Sendable>(
    _ body: @escaping @Sendable (Int32) throws(CowMLXError) -> R
  ) async throws -> R {
    await settle()
    return try await blocking { [handle] () throws(CowMLXError) in try body(handle.raw) }
  }

  /// Makes a call on the context that waits and that a cancel ends.
  func cancelable<R: Sendable>(
    _ body: @escaping @Sendable (Int32) throws(CowMLXError) -> R
  ) async throws -> R {
    await settle()
    return try await canceler.run { [handle] () throws(CowMLXError) in try body(handle.raw) }
  }

  /// Waits for the end of a generation that its host has left: the context is busy until then.
  func settle() async {
    guard let running = running.withLock({ $0 }), running.isAbandoned else { return }
    await running.settle()
  }
}

/// A count as C's size.
func size(_ operation: String, _ count: Int) throws(CowMLXError) -> Int {
  guard count >= 0 else {
    throw .refused(
      COW_MLX_EINVAL, operation, "out_of_range", argument: "count",
      "count is \(count), must be at least 0")
  }
  return count
}
