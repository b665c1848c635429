import CCowMLX

/// Minimizes the loss of a program, or of a language model on conversations.
///
/// ```swift
/// let training = try await Training(of: program, TrainingParams(seed: 1))
/// for try await event in training.fit(FitParams(steps: 100, inputs: [x, y])) {
///   print(event.step, event.loss)
/// }
/// ```
///
/// Contexts generate meanwhile. One call at a time runs on a training; others are refused.
public final class Training: Sendable {
  let handle: Handle<Int32>
  /// The runtime that the training belongs to.
  public let runtime: Runtime
  let model: Model?
  let canceler: Canceler
  /// The events of a fit whose loop was left.
  let left = Locked<Handover<TrainingEvent>?>(nil)

  private init(raw: Int32, model: Model?, on runtime: Runtime) {
    (self.model, self.runtime) = (model, runtime)
    handle = Handle(raw, parent: runtime) { api.training_free($0) }
    canceler = Canceler { [handle] in _ = api.training_cancel(handle.raw) }
  }

  /// Creates a training of a program, which minimizes its output "loss".
  public convenience init(
    of program: Program, _ params: TrainingParams = TrainingParams()
  ) async throws(CowMLXError) {
    let raw = try await blocking { () throws(CowMLXError) in
      var raw: Int32 = 0
      try params.withRaw { (params) throws(CowMLXError) in
        try check(api.training_create(program.handle.raw, &params, &raw))
      }
      return raw
    }
    self.init(raw: raw, model: nil, on: program.runtime)
  }

  /// Creates a training of a language model: LoRA, DoRA or all weights, see ``TrainingParams/fineTune``.
  ///
  /// It trains a copy that shares all other weights with the model; contexts continue with the unchanged model.
  public convenience init(
    of model: Model, _ params: TrainingParams = TrainingParams()
  ) async throws(CowMLXError) {
    let raw = try await blocking { () throws(CowMLXError) in
      var raw: Int32 = 0
      try params.withRaw { (params) throws(CowMLXError) in
        try check(api.training_create_for_model(model.handle.raw, &params, &raw))
      }
      return raw
    }
    self.init(raw: raw, model: model, on: model.runtime)
  }

  /// Frees the training. A call that runs on it ends with ``CowMLXError/canceled(_:)``.
  public func close() async { await handle.close() }

  /// Cancels the running call, which keeps the state after its last step. Never waits.
  public func cancel() throws(CowMLXError) {
    try checkCancel(api.training_cancel(handle.raw), "Training.cancel", "training")
  }

  /// Makes a step on a batch: the program's inputs without its parameters, with rows as the first axis; for a language
  /// model its tokens and targets.
  public func step(_ inputs: [NDArray]) async throws -> TrainingEvent {
    try await cancellable { (training) throws(CowMLXError) in
      defer { withExtendedLifetime(inputs) {} }
      let values = inputs.map { cow_mlx_value(array: $0.handle.raw, host: nil) }
      return try TrainingEvent.filled { (event) throws(CowMLXError) in
        try check(api.training_step(training, values, values.count, event))
      }
    }
  }

  /// Measures loss, accuracy and perplexity on data; nothing is changed.
  ///
  /// - Parameters:
  ///   - params: inputs or lines, and the size of batches; no other may be set.
  ///   - batches: as in ``fit(_:batches:)``.
  public func evaluate(
    _ params: FitParams, batches: BatchSource? = nil
  ) async throws -> TrainingEvent {
    try await cancellable { (training) throws(CowMLXError) in
      let host = FitHost(batches: batches) { _ in true }
      return try host.filled(params) { (raw) throws(CowMLXError) in
        try TrainingEvent.filled { (event) throws(CowMLXError) in
          try check(api.training_evaluate(training, &raw, event))
        }
      }
    }
  }

  /// The current value of a parameter, also while a fit runs. No later step changes it.
  public func parameter(_ name: String) async throws(CowMLXError) -> NDArray {
    let runtime = runtime
    let name = try CText("Training.parameter", "name", name)
    return try await call { (training) throws(CowMLXError) in
      var raw: Int64 = 0
      try check(api.training_parameter(training, name.start, &raw))
      return NDArray(raw: raw, on: runtime)
    }
  }

  /// Describes the training, as a JSON object: step, learning rate, optimizer, parameters, data.
  public func info() async throws(CowMLXError) -> JSONValue {
    try await call { (training) throws(CowMLXError) in
      try json { api.training_info(training, $0, $1, $2) }
    }
  }

  /// Saves the state after the last step into a folder, completely or not at all, also while a fit runs.
  public func save(to folder: String) async throws(CowMLXError) {
    let folder = try CText("Training.save", "folder", folder)
    try await call { (training) throws(CowMLXError) in
      try check(api.training_save(training, folder.start))
    }
  }

  /// Loads a saved training into this one, which has the same program and params.
  public func load(_ folder: String) async throws(CowMLXError) {
    let folder = try CText("Training.load", "folder", folder)
    try await call { (training) throws(CowMLXError) in
      try check(api.training_load(training, folder.start))
    }
  }

  /// Writes the trained weights of a language model in mlx-lm's format: an adapter, or a model if all weights were
  /// trained.
  ///
  /// - Parameters:
  ///   - fuse: a model that has the adapter in its weights.
  ///   - dequantize: weights of 16 or 32 bits in place of quantized ones that had an adapter.
  public func export(
    to folder: String, fuse: Bool = false, dequantize: Bool = false
  ) async throws(CowMLXError) {
    let options: JSONValue = ["fuse": .bool(fuse), "dequantize": .bool(dequantize)]
    let (folder, text) = (try CText("Training.export", "folder", folder), options.description)
    try await call { (training) throws(CowMLXError) in
      try check(api.training_export(training, folder.start, text))
    }
  }

  /// The current weights of a language model's training as an adapter, also while a fit runs. Later steps do not change
  /// it.
  public func adapter() async throws(CowMLXError) -> Adapter {
    let raw = try await call { (training) throws(CowMLXError) in
      var raw: Int32 = 0
      try check(api.training_adapter(training, &raw))
      return raw
    }
    guard let model else {
      throw .refused(
        Int(COW_MLX_EUNSUPPORTED), "Training.adapter", "unsupported", "the training is of a program"
      )
    }
    return Adapter(raw, of: model)
  }

  /// Makes a call that waits.
  func call<R: Sendable>(
    _ body: @escaping @Sendable (Int32) throws(CowMLXError) -> R
  ) async throws(CowMLXError) -> R {
    await settle()
    return try await blocking { [handle] () throws(CowMLXError) in try body(handle.raw) }
  }

  /// Makes a call that a cancelled task cancels.
  func cancellable<R: Sendable>(
    _ body: @escaping @Sendable (Int32) throws(CowMLXError) -> R
  ) async throws -> R {
    await settle()
    return try await canceler.run { [handle] () throws(CowMLXError) in try body(handle.raw) }
  }

  /// Waits for the end of a fit whose loop was left: the training is busy until then.
  func settle() async {
    guard let events = left.withLock({ $0 }) else { return }
    await events.ended()
    left.withLock { if $0 === events { $0 = nil } }
  }
}
