import CCowMLX

/// A host's loop over the results of an asynchronous call. Its end before that of the call, such as by
/// `break`, cancels the call.
final class Loop<Element: Sendable>: Sendable {
  private let context: Context
  private let following: Following<Element>

  /// Begins a call, once an earlier one that was left has ended.
  init(
    _ context: Context, _ operation: String, _ listener: GenerationListener,
    _ taker: @escaping Taker<Element>,
    begin: (Int32) throws(CowMLXError) -> Void
  ) async throws {
    try Task.checkCancellation()
    await context.settle()
    try named(operation) { () throws(CowMLXError) in try begin(context.handle.raw) }
    self.context = context
    following = Following(context.handle, operation, listener, taker)
    context.running.withLock { $0 = following }
    do {
      try following.watch()
    } catch {
      following.abandon(cancels: true)
      throw error
    }
  }

  func next() async throws -> Element? { try await following.next() }

  deinit {
    let isLast = context.running.withLock { $0 === following }
    following.abandon(cancels: isLast)  // another call may run by now
  }
}

/// A result of an asynchronous call; nil after the last one.
struct Taken<Element: Sendable>: Sendable {
  var element: Element?
  var isLast: Bool
  var isCanceled = false
}

/// Takes a result that is ready from a context.
typealias Taker<Element: Sendable> = @Sendable (Int32) async throws -> Taken<Element>

/// Takes the results of an asynchronous call on a context. No thread waits for them.
final class Following<Element: Sendable>: Running {
  private struct State {
    var wake: Wake?
    var isAbandoned = false
    var hasEnded = false
  }

  private let handle: Handle<Int32>
  private let operation: String
  private let listener: GenerationListener  // which polls call
  private let taker: Taker<Element>
  private let state = Locked(State())

  init(
    _ handle: Handle<Int32>, _ operation: String, _ listener: GenerationListener,
    _ taker: @escaping Taker<Element>
  ) {
    (self.handle, self.operation, self.listener, self.taker) = (handle, operation, listener, taker)
  }

  func watch() throws(CowMLXError) {
    var descriptor: Int32 = -1
    try check(api.context_wake_fd(handle.raw, &descriptor))
    let wake = try Wake(copying: descriptor)
    state.withLock { $0.wake = wake }
  }

  /// The next result; nil at the end. An error is the last result.
  func next() async throws -> Element? {
    do {
      try await ready()
      let taken = try await taker(handle.raw)
      if taken.isLast { end() }
      if taken.isCanceled, Task.isCancelled { throw CancellationError() }
      return taken.element
    } catch {
      end()
      guard let failure = error as? CowMLXError else { throw error }
      if Task.isCancelled, case .canceled = failure { throw CancellationError() }
      throw failure.named(operation)
    }
  }

  /// Waits until a result is ready. The end of the task cancels the call, which then has an end.
  private func ready() async throws {
    if Task.isCancelled { cancel() }
    if try isReady() { return }
    try await withTaskCancellationHandler {
      repeat {
        await state.withLock { $0.wake }?.wait()
      } while try !isReady()
    } onCancel: {
      cancel()
    }
  }

  private func isReady() throws -> Bool {
    let status = api.context_poll(handle.raw, 0)
    if status == COW_MLX_ETIMEDOUT { return false }
    if status < 0, handle.raw == 0 {
      throw CowMLXError.refused(COW_MLX_ECANCELED, operation, "freed", "the context was closed")
    }
    try check(status)
    return true
  }

  private func cancel() { _ = api.context_cancel(handle.raw) }

  private func end() { state.withLock { $0.hasEnded = true } }

  func interrupt() { state.withLock { $0.wake }?.raise() }

  var isAbandoned: Bool { state.withLock { $0.isAbandoned && !$0.hasEnded } }

  func abandon(cancels: Bool) {
    let isLeft = state.withLock { state in
      state.isAbandoned = true
      return !state.hasEnded
    }
    if isLeft, cancels { cancel() }
  }

  func settle() async {
    while isAbandoned { _ = try? await next() }
  }
}
