import CCowMLX
import Foundation

/// One generated token. It describes itself as its text.
public struct Piece: Hashable, Sendable, CustomStringConvertible {
  /// Whole characters; empty where the token is a part of one, or may begin a stop text.
  public var text: String
  /// The token's id.
  public var token: Token
  /// The natural logarithm of the token's probability, if `GenerationParams.logprobs` is not 0.
  public var logprob: Float?
  /// The most probable tokens in its place, if `GenerationParams.logprobs` is not 0.
  public var alternatives: [TokenLogprob]
  /// Why the generation ends with this piece, if that is known already.
  public var finish: Finish?

  public var description: String { text }
}

/// A token, and the natural logarithm of its probability under the model.
public struct TokenLogprob: Hashable, Sendable {
  /// The token's id.
  public var token: Token
  /// Before penalties, filters and temperature.
  public var logprob: Float
}

/// The pieces of a generation, which begins with the first `next()` of an iterator.
///
///     for try await piece in context.generate(tokens) { print(piece, terminator: "") }
///
/// A loop that ends early cancels the generation, and so does the end of its task, which throws
/// `CancellationError`.
public struct Generation: AsyncSequence, Sendable {
  public typealias Element = Piece

  let context: Context
  let prompt: [Token]
  let params: GenerationParams
  let listener: GenerationListener
  private let ended = Locked((finish: Finish?.none, last: Token?.none))

  init(
    _ context: Context, _ prompt: [Token], _ params: GenerationParams,
    _ listener: GenerationListener
  ) {
    (self.context, self.prompt, self.params) = (context, prompt, params)
    self.listener = listener
  }

  /// Why the generation has ended; nil as long as it has not.
  public var finish: Finish? { ended.withLock { $0.finish } }
  /// The last token: at the end, the end token that has no piece.
  public var lastToken: Token? { ended.withLock { $0.last } }

  public func makeAsyncIterator() -> Iterator { Iterator(generation: self) }

  public struct Iterator: AsyncIteratorProtocol {
    fileprivate let generation: Generation
    private var loop: Loop<Piece>?
    private var hasEnded = false

    fileprivate init(generation: Generation) { self.generation = generation }

    /// The next piece; nil after the last one.
    public mutating func next() async throws -> Piece? {
      guard !hasEnded else { return nil }
      hasEnded = true  // unless this succeeds
      if loop == nil { loop = try await generation.begin() }
      let piece = try await loop?.next()
      hasEnded = piece == nil
      return piece
    }
  }

  private func begin() async throws -> Loop<Piece> {
    let hasLogprobs = params.logprobs != 0
    let taker: Taker<Piece> = { [ended] context in
      var (finish, last) = (Finish?.none, Token?.none)
      var piece = try takePiece(context, &finish, &last)
      ended.withLock { [finish, last] in $0 = (finish, last) }
      if hasLogprobs, piece != nil {
        piece?.alternatives = try await blocking { () throws(CowMLXError) in
          try mostProbable(context)
        }
      }
      return Taken(element: piece, isLast: piece == nil, isCanceled: finish == .canceled)
    }
    ended.withLock { $0 = (nil, nil) }
    return try await Loop(context, "Context.generate", listener, taker) {
      (handle) throws(CowMLXError) in
      try params.withRaw { (raw) throws(CowMLXError) in
        listener.hear(of: &raw)
        try check(api.context_begin_async(handle, prompt, prompt.count, &raw))
      }
    }
  }
}

extension Context {
  /// Processes a prompt and generates: the pieces, as they come.
  ///
  /// No thread waits for a piece. The first `next()` begins the generation and throws its errors.
  ///
  /// - Parameters:
  ///   - tokens: the whole sequence so far, not only the new part.
  ///   - onProgress: receives the processed and all tokens of the prompt; false cancels the generation.
  ///   - onLogits: changes the logits of a token before it is sampled.
  public func generate(
    _ tokens: [Token], params: GenerationParams = GenerationParams(),
    onProgress: (@Sendable (Int, Int) -> Bool)? = nil, onLogits: LogitsFunction? = nil
  ) -> Generation {
    Generation(self, tokens, params, GenerationListener(onProgress, onLogits))
  }

  /// The tokens of a text, and what the model makes of them.
  public func generate(
    _ prompt: String, params: GenerationParams = GenerationParams()
  ) async throws -> Generation {
    generate(try await model.tokenize(prompt, special: .add), params: params)
  }

  /// Processes a prompt; `next()` generates.
  public func begin(
    _ tokens: [Token], params: GenerationParams = GenerationParams(),
    onProgress: (@Sendable (Int, Int) -> Bool)? = nil
  ) async throws {
    let listener = GenerationListener(onProgress, nil)
    try await cancelable { (context) throws(CowMLXError) in
      try named("Context.begin") { () throws(CowMLXError) in
        try params.withRaw { (raw) throws(CowMLXError) in
          listener.hear(of: &raw)
          try check(api.context_begin(context, tokens, tokens.count, &raw))
        }
      }
    }
  }

  /// Processes a prompt with rows of embeddings, floats of [rows, width], in the places of tokens of
  /// -1; `next()` generates.
  public func beginEmbeddings(
    _ tokens: [Token], embeddings: NDArray, params: GenerationParams = GenerationParams(),
    onProgress: (@Sendable (Int, Int) -> Bool)? = nil
  ) async throws {
    let listener = GenerationListener(onProgress, nil)
    try await cancelable { (context) throws(CowMLXError) in
      try named("Context.beginEmbeddings") { () throws(CowMLXError) in
        try params.withRaw { (raw) throws(CowMLXError) in
          listener.hear(of: &raw)
          try check(
            api.context_begin_embeddings(
              context, tokens, tokens.count, embeddings.handle.raw, &raw))
        }
      }
    }
  }

  /// The next piece of a generation that `begin` has begun; nil after the last one.
  public func next() async throws -> Piece? {
    try await cancelable { (context) throws(CowMLXError) in
      var (finish, last) = (Finish?.none, Token?.none)
      return try named("Context.next") { () throws(CowMLXError) in
        try takePiece(context, &finish, &last)
      }
    }
  }
}

/// Changes the logits of every token of the vocabulary in place, behind all tokens of the context;
/// false cancels. Both are valid during the call.
public typealias LogitsFunction =
  @Sendable (UnsafeBufferPointer<Token>, UnsafeMutableBufferPointer<Float>) -> Bool

/// Hears of a prompt's progress, and changes logits.
final class GenerationListener: Sendable {
  private let onProgress: (@Sendable (Int, Int) -> Bool)?
  private let onLogits: LogitsFunction?

  init(_ onProgress: (@Sendable (Int, Int) -> Bool)?, _ onLogits: LogitsFunction?) {
    (self.onProgress, self.onLogits) = (onProgress, onLogits)
  }

  /// Puts itself into a call's params. It must live as long as the call and its generation.
  func hear(of params: inout cow_mlx_generation_params) {
    params.user_data = Unmanaged.passUnretained(self).toOpaque()
    if onProgress != nil {
      params.prompt_progress = { processed, total, listener in
        GenerationListener.of(listener)?.onProgress?(processed, total) ?? true
      }
    }
    if onLogits != nil {
      params.logits_fn = { tokens, count, logits, vocabulary, listener in
        GenerationListener.of(listener)?.onLogits?(
          UnsafeBufferPointer(start: tokens, count: count),
          UnsafeMutableBufferPointer(start: logits, count: vocabulary)) ?? true
      }
    }
  }

  private static func of(_ listener: UnsafeMutableRawPointer?) -> GenerationListener? {
    listener.map { Unmanaged<GenerationListener>.fromOpaque($0).takeUnretainedValue() }
  }
}

/// Takes the next piece; nil at the end, which has a reason.
private func takePiece(
  _ context: Int32, _ finish: inout Finish?, _ last: inout Token?
) throws(CowMLXError) -> Piece? {
  var raw = cow_mlx_piece()
  raw.struct_size = MemoryLayout<cow_mlx_piece>.size
  var isDone = false
  let text = try text(64) {
    let status = api.context_next(context, $0, $1, $2, &raw)
    isDone = status == COW_MLX_DONE
    return status
  }
  finish = Finish(code: raw.finish)
  last = raw.token >= 0 ? raw.token : nil
  if isDone { return nil }
  let logprob = raw.logprob.isNaN ? nil : raw.logprob
  return Piece(text: text, token: raw.token, logprob: logprob, alternatives: [], finish: finish)
}

/// The most probable tokens at a context's last piece.
func mostProbable(_ context: Int32) throws(CowMLXError) -> [TokenLogprob] {
  var logprobs: [Float] = []
  let tokens = try vector(32, of: Token.self) { tokens, capacity, count in
    logprobs = [Float](repeating: 0, count: capacity)
    return api.context_logprobs(context, tokens, &logprobs, capacity, count)
  }
  return zip(tokens, logprobs).map { TokenLogprob(token: $0, logprob: $1) }
}

extension Finish {
  /// The reason with this code, unless it is "it has not".
  init?(code: Int32) {
    guard code != COW_MLX_FINISH_NONE else { return nil }
    self.init(rawValue: code)
  }
}
