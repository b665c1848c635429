import CCowMLX

/// Supplies the batch of a step, from 0: an array for each input of the program, whose first axis is the rows; for a
/// language model tokens and targets. The training takes the arrays and closes them. nil: there are no more.
public typealias BatchSource = @Sendable (_ step: Int) -> [NDArray]?

extension Training {
  /// Trains until an end that params set, and gives steps, evaluations and checkpoints, and last the end.
  ///
  /// The fit begins with the first event that is asked for, and is at most one event ahead of the loop. Leaving the
  /// loop, or cancelling its task, cancels it; the training keeps the state after its last step, and later calls on it
  /// wait for the end of the fit. A fit continues at the training's place in the data.
  ///
  /// - Parameters:
  ///   - params: the data and the end.
  ///   - batches: supplies batches, if params have no data, on a thread of the package.
  public func fit(_ params: FitParams, batches: BatchSource? = nil) -> Fit {
    Fit(training: self, params: params, batches: batches)
  }
}

/// The events of a fit.
public struct Fit: AsyncSequence, Sendable {
  public typealias Element = TrainingEvent

  let training: Training
  let params: FitParams
  let batches: BatchSource?

  public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(fit: self) }

  /// Gives the events in their order.
  public struct AsyncIterator: AsyncIteratorProtocol {
    private let fit: Fit
    private var running: RunningFit?
    private var hasEnded = false

    fileprivate init(fit: Fit) { self.fit = fit }

    /// The next event; nil after the end.
    public mutating func next() async throws -> TrainingEvent? {
      guard !hasEnded else { return nil }
      hasEnded = true  // unless this succeeds
      if running == nil { running = try await RunningFit(fit) }
      let event = try await running?.next()
      hasEnded = event == nil
      return event
    }
  }
}

/// A fit on a thread of the package, which is at most one event ahead of its host. Its release cancels it.
private final class RunningFit: Sendable {
  private let training: Training
  private let events = Handover<TrainingEvent>()
  private let call: Canceler.Call

  init(_ fit: Fit) async throws {
    try Task.checkCancellation()
    await fit.training.settle()
    (training, call) = (fit.training, fit.training.canceler.call())
    Workers.long.run { [events, call] in
      do throws(CowMLXError) {
        try call.run { () throws(CowMLXError) in
          try fit.training.makeFit(fit.params, batches: fit.batches) { events.give($0) }
        }
        events.end(nil)
      } catch {
        events.end(error)
      }
    }
  }

  /// The next event; nil after the end.
  func next() async throws -> TrainingEvent? {
    do {
      let event = try await withTaskCancellationHandler {
        try await events.next()
      } onCancel: {
        cancel()
      }
      if event == nil { try Task.checkCancellation() }
      return event
    } catch CowMLXError.canceled where Task.isCancelled {
      throw CancellationError()
    }
  }

  private func cancel() {
    events.close()
    call.cancel()
  }

  deinit {
    cancel()
    training.left.withLock { $0 = events }
  }
}

extension Training {
  /// Trains until an end that params set, and waits for it.
  ///
  /// - Parameters:
  ///   - params: the data and the end.
  ///   - batches: supplies batches, if params have no data.
  ///   - onEvent: receives steps, evaluations and checkpoints, and last the end; false cancels the fit.
  @available(*, noasync, message: "use for try await event in training.fit(params)")
  public func fit(
    _ params: FitParams, batches: BatchSource? = nil, onEvent: @escaping (TrainingEvent) -> Bool
  ) throws(CowMLXError) {
    try canceler.call().run { () throws(CowMLXError) in
      try makeFit(params, batches: batches, onEvent: onEvent)
    }
  }

  fileprivate func makeFit(
    _ params: FitParams, batches: BatchSource?, onEvent: @escaping (TrainingEvent) -> Bool
  ) throws(CowMLXError) {
    let host = FitHost(batches: batches, onEvent: onEvent)
    try host.filled(params) { (raw) throws(CowMLXError) in
      try check(api.training_fit(handle.raw, &raw, FitHost.hear, host.userData))
    }
  }
}

/// What C calls while a fit runs, on the thread that made the call.
final class FitHost {
  private let batches: BatchSource?
  private let onEvent: (TrainingEvent) -> Bool
  private var failure: CowMLXError?

  init(batches: BatchSource?, onEvent: @escaping (TrainingEvent) -> Bool) {
    (self.batches, self.onEvent) = (batches, onEvent)
  }

  var userData: UnsafeMutableRawPointer { Unmanaged.passUnretained(self).toOpaque() }

  static let hear: cow_mlx_training_fn = { event, userData in
    guard let event, let userData else { return false }
    let host = Unmanaged<FitHost>.fromOpaque(userData).takeUnretainedValue()
    return host.onEvent(TrainingEvent(event.pointee))
  }

  /// Makes a call with C's struct, and throws what the callbacks could not.
  func filled<R>(
    _ params: FitParams, _ call: (inout cow_mlx_fit_params) throws(CowMLXError) -> R
  ) throws(CowMLXError) -> R {
    defer { withExtendedLifetime(self) {} }
    do throws(CowMLXError) {
      let result = try params.withRaw { (raw) throws(CowMLXError) in
        if batches != nil {
          raw.next_batch = Self.supply
          raw.user_data = userData
        }
        return try call(&raw)
      }
      if let failure { throw failure }
      return result
    } catch {
      throw failure ?? error
    }
  }

  private static let supply: cow_mlx_batch_fn = { step, inputs, count, userData in
    guard let inputs, let userData else { return false }
    let host = Unmanaged<FitHost>.fromOpaque(userData).takeUnretainedValue()
    return host.supply(step, UnsafeMutableBufferPointer(start: inputs, count: count))
  }

  private func supply(_ step: Int, _ inputs: UnsafeMutableBufferPointer<Int64>) -> Bool {
    guard failure == nil, let arrays = batches?(step) else { return false }
    let isOpen = arrays.allSatisfy { $0.handle.raw != 0 }
    let areDifferent = Set(arrays.map(ObjectIdentifier.init)).count == arrays.count
    guard arrays.count == inputs.count, isOpen, areDifferent else {
      failure = .refused(
        Int(COW_MLX_EINVAL), "Training.fit", "out_of_range", argument: "batches",
        "the batch of step \(step) has \(arrays.count) arrays, must have \(inputs.count) open ones, "
          + "all different")
      return false
    }
    for (at, array) in arrays.enumerated() { inputs[at] = array.handle.take() }
    return true
  }
}
