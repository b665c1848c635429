import CCowMLX
import Foundation

/// One sequence of tokens and its cache. One call at a time runs on it; any task may make it.
///
/// A loop over pieces or events that ends early cancels its generation. The next call on the context
/// waits until that has ended.
public final class Context: Sendable {
  /// The model.
  public let model: Model
  let handle: Handle<Int32>
  let running = Locked<(any Running)?>(nil)
  let canceler: Canceler

  fileprivate init(_ raw: Int32, of model: Model) {
    self.model = model
    handle = Handle(raw, parent: model) { api.context_free($0) }
    canceler = Canceler { [handle] in _ = api.context_cancel(handle.raw) }
  }

  /// Describes the context, as a JSON object: `cow_mlx_context_info()` lists its members.
  public func info() async throws -> JSONValue {
    try await call { (context) throws(CowMLXError) in
      try json { api.context_info(context, $0, $1, $2) }
    }
  }

  /// The tokens that the cache holds, of prompts and of answers.
  public func tokens() async throws -> [Token] {
    try await call { (context) throws(CowMLXError) in
      try vector(1024) { api.context_tokens(context, $0, $1, $2) }
    }
  }

  /// Creates a copy of the context: tokens, state, parameters and adapter.
  public func fork() async throws -> Context {
    let raw = try await call { (context) throws(CowMLXError) in
      var raw: Int32 = 0
      try check(api.context_fork(context, &raw))
      return raw
    }
    return Context(raw, of: model)
  }

  /// Clears all tokens; parameters and adapter stay.
  public func reset() async throws {
    try await call { (context) throws(CowMLXError) in try check(api.context_reset(context)) }
  }

  /// Drops the last tokens, at most all, and returns their number.
  @discardableResult
  public func trimEnd(_ count: Int) async throws -> Int {
    try await cancelable { (context) throws(CowMLXError) in
      var trimmed = 0
      try check(api.context_trim_end(context, try size("Context.trimEnd", count), &trimmed))
      return trimmed
    }
  }

  /// Drops the first tokens, at most all, and returns their number. The others are processed again.
  @discardableResult
  public func trimFront(_ count: Int) async throws -> Int {
    try await cancelable { (context) throws(CowMLXError) in
      var trimmed = 0
      try check(api.context_trim_front(context, try size("Context.trimFront", count), &trimmed))
      return trimmed
    }
  }

  /// Records the state, to come back to it with `rewind`.
  public func checkpoint() async throws -> Checkpoint {
    let raw = try await call { (context) throws(CowMLXError) in
      var raw: Int32 = 0
      try check(api.context_checkpoint(context, &raw))
      return raw
    }
    return Checkpoint(raw, of: model)
  }

  /// Restores the state of a checkpoint of this context.
  public func rewind(to checkpoint: Checkpoint) async throws {
    try await call { (context) throws(CowMLXError) in
      try check(api.context_rewind(context, checkpoint.handle.raw))
    }
  }

  /// Writes tokens and cache to a file, completely or not at all.
  public func save(to path: String) async throws {
    let path = try CText("Context.save", "path", path)
    try await cancelable { (context) throws(CowMLXError) in
      try check(api.context_save(context, path.start))
    }
  }

  /// Loads tokens and cache that a context of the same model has saved.
  public func load(from path: String) async throws {
    let path = try CText("Context.load", "path", path)
    try await cancelable { (context) throws(CowMLXError) in
      try check(api.context_load(context, path.start))
    }
  }

  /// Saves tokens and cache to an array of bytes.
  public func saveArray() async throws -> NDArray {
    let runtime = model.runtime
    return try await cancelable { (context) throws(CowMLXError) in
      var raw: Int64 = 0
      try check(api.context_save_array(context, &raw))
      return NDArray(raw: raw, on: runtime)
    }
  }

  /// Loads tokens and cache that a context of the same model has saved to an array of bytes.
  public func loadArray(_ array: NDArray) async throws {
    try await cancelable { (context) throws(CowMLXError) in
      try check(api.context_load_array(context, array.handle.raw))
    }
  }

  /// Sets the adapter; nil: none. A change clears the context's tokens.
  public func setAdapter(_ adapter: Adapter?) async throws {
    let isClosed = adapter.map { $0.handle.raw == 0 } ?? false
    if isClosed {
      throw CowMLXError.refused(
        COW_MLX_EHANDLE, "Context.setAdapter", "unknown_handle", argument: "adapter",
        "the adapter is closed; nil stands for none")
    }
    try await call { (context) throws(CowMLXError) in
      try check(api.context_set_adapter(context, adapter?.handle.raw ?? 0))
    }
  }

  /// The model's logits after the last token: a value for every token of the vocabulary.
  public func logits() async throws -> [Float] {
    try await call { (context) throws(CowMLXError) in
      try vector(1 << 18) { api.context_logits(context, $0, $1, $2) }
    }
  }

  /// The most probable tokens at the last piece, the most probable first.
  public func logprobs() async throws -> [TokenLogprob] {
    try await call { (context) throws(CowMLXError) in try mostProbable(context) }
  }

  /// The log probability of each token given those before it, behind those that the context holds:
  /// a row of the token itself and of the `top` most probable ones. Behind an empty context the first
  /// token has none: not a number.
  public func promptLogprobs(_ tokens: [Token], top: Int32 = 0) async throws -> [[TokenLogprob]] {
    try await call { (context) throws(CowMLXError) in
      var values: [Float] = []
      let guess = tokens.count * (1 + max(Int(top), 0))
      let ids = try vector(guess, of: Token.self) { ids, capacity, length in
        values = [Float](repeating: 0, count: capacity)
        return api.context_prompt_logprobs(
          context, tokens, tokens.count, top, ids, &values, capacity, length)
      }
      let pairs = zip(ids, values).map { TokenLogprob(token: $0, logprob: $1) }
      let width = 1 + Int(top)
      return stride(from: 0, to: pairs.count, by: width).map { Array(pairs[$0..<$0 + width]) }
    }
  }

  /// Sizes and times of the last generation, so far.
  public func stats() async throws -> GenerationStats {
    try await call { (context) throws(CowMLXError) in
      try GenerationStats.filled { (stats) throws(CowMLXError) in
        try check(api.context_stats(context, stats))
      }
    }
  }

  /// Cancels the call that runs on the context, which stays usable. Never blocks.
  ///
  /// The canceled call throws `CowMLXError.canceled`, or its sequence ends with `Finish.canceled`. To
  /// cancel by a task, cancel that: the call then throws `CancellationError`.
  public func cancel() { _ = api.context_cancel(handle.raw) }

  /// Frees the context now instead of with its last reference. A running call throws
  /// `CowMLXError.canceled`.
  public func close() async {
    await handle.close()
    running.withLock { $0 }?.interrupt()
  }
}

extension Model {
  /// Creates an empty context.
  public func context(_ params: ContextParams = ContextParams()) async throws -> Context {
    let raw = try await call { (model) throws(CowMLXError) in
      var raw: Int32 = 0
      try params.withRaw { (params) throws(CowMLXError) in
        try check(api.context_create(model, &params, &raw))
      }
      return raw
    }
    return Context(raw, of: self)
  }
}

/// The state of a context at one moment.
public final class Checkpoint: Sendable {
  let handle: Handle<Int32>

  init(_ raw: Int32, of model: Model) {
    handle = Handle(raw, parent: model) { api.checkpoint_free($0) }
  }

  /// Frees the checkpoint now instead of with its last reference.
  public func close() async { await handle.close() }
}

/// A LoRA or DoRA adapter of one model, whose weights it shares.
public final class Adapter: Sendable {
  let handle: Handle<Int32>

  init(_ raw: Int32, of model: Model) {
    handle = Handle(raw, parent: model) { api.adapter_free($0) }
  }

  /// Frees the adapter now instead of with its last reference. It lives until no context uses it.
  public func close() async { await handle.close() }
}

extension Model {
  /// Loads an adapter's folder: `adapter_config.json` and `adapters.safetensors`.
  ///
  /// - Parameter scale: strength: 1 as it was trained, 0 without effect.
  public func adapter(_ path: String, scale: Float = 1) async throws -> Adapter {
    let path = try CText("Model.adapter", "path", path)
    let raw = try await call { (model) throws(CowMLXError) in
      var raw: Int32 = 0
      try check(api.adapter_load(model, path.start, scale, &raw))
      return raw
    }
    return Adapter(raw, of: self)
  }
}
