import CCowMLX
import Foundation

/// A token's id.
public typealias Token = Int32

/// Flags of `Model.tokenize` and `Model.detokenize`.
public struct SpecialTokens: OptionSet, Hashable, Sendable {
  /// The flags' bits, as in C.
  public let rawValue: UInt32

  /// Makes flags from their bits in C.
  public init(rawValue: UInt32) { self.rawValue = rawValue }

  /// Tokenize: add the tokens that open and close a text.
  public static let add = SpecialTokens(rawValue: UInt32(COW_MLX_ADD_SPECIAL))
  /// Tokenize: read `"<|end|>"` in the text as the special token. Only for text that the host wrote itself.
  public static let parse = SpecialTokens(rawValue: UInt32(COW_MLX_PARSE_SPECIAL))
  /// Detokenize: leave special tokens out.
  public static let skip = SpecialTokens(rawValue: UInt32(COW_MLX_SKIP_SPECIAL))
}

/// A model: weights, tokenizer and chat template of one folder. Any task may use it.
public final class Model: Sendable {
  let handle: Handle<Int32>
  /// The runtime that the model belongs to.
  public let runtime: Runtime

  init(_ raw: Int32, runtime: Runtime) {
    self.runtime = runtime
    handle = Handle(raw, parent: runtime) { api.model_free($0) }
  }

  /// Describes a model's folder without loading it, as a JSON object: `cow_mlx_model_inspect()` lists
  /// its members.
  ///
  /// - Parameter kvBits: of a context, as in `ContextParams`: 0, 4 or 8.
  public static func inspect(
    _ path: String, kvBits: Int32 = 0, runtime: Runtime? = nil
  ) async throws -> JSONValue {
    let runtime = try await running(runtime)
    let path = try CText("Model.inspect", "path", path)
    return try await blocking { () throws(CowMLXError) in
      try withExtendedLifetime(runtime) { () throws(CowMLXError) in
        try json { api.model_inspect(path.start, kvBits, $0, $1, $2) }
      }
    }
  }

  /// Describes the model, as a JSON object: `cow_mlx_model_info()` lists its members.
  public func info() async throws -> JSONValue {
    try await call { (model) throws(CowMLXError) in
      try json(8192) { api.model_info(model, $0, $1, $2) }
    }
  }

  /// Turns text into tokens.
  public func tokenize(_ text: String, special: SpecialTokens = []) async throws -> [Token] {
    try await call { (model) throws(CowMLXError) in
      let bytes = text.utf8CString  // has a NUL at its end
      return try vector(bytes.count + 8) { tokens, capacity, count in
        bytes.withUnsafeBufferPointer {
          let text = $0.baseAddress
          return api.model_tokenize(
            model, text, $0.count - 1, special.rawValue, tokens, capacity, count)
        }
      }
    }
  }

  /// Turns tokens into text. Bytes that are not UTF-8 become U+FFFD.
  public func detokenize(_ tokens: [Token], special: SpecialTokens = []) async throws -> String {
    try await call { (model) throws(CowMLXError) in
      try text(tokens.count * 8 + 64) {
        api.model_detokenize(model, tokens, tokens.count, special.rawValue, $0, $1, $2)
      }
    }
  }

  /// Whether a token ends a generation. Tokens outside of the vocabulary do not.
  public func isEnd(_ token: Token) async throws -> Bool {
    try await call { (model) throws(CowMLXError) in
      var isEnd = false
      try check(api.model_is_end(model, token, &isEnd))
      return isEnd
    }
  }

  /// Renders a conversation with the model's chat template, and tokenizes it.
  public func chatPrompt(
    _ messages: [ChatMessage], options: ChatOptions = ChatOptions()
  ) async throws -> [Token] {
    let conversation = try Conversation(messages, options)
    return try await call { (model) throws(CowMLXError) in
      let (start, count) = (conversation.messages.start, conversation.messages.count)
      return try vector(count + 64) {
        api.model_chat_prompt(model, start, count, conversation.options?.start, $0, $1, $2)
      }
    }
  }

  /// Frees the model now instead of with its last reference. Its weights live until its last context
  /// is freed.
  public func close() async { await handle.close() }

  /// Makes a call on the model that waits.
  func call<R: Sendable>(
    _ body: @escaping @Sendable (Int32) throws(CowMLXError) -> R
  ) async throws(CowMLXError) -> R {
    try await blocking { [handle] () throws(CowMLXError) in try body(handle.raw) }
  }
}

/// The runtime that a call is given, or a start of the call's own.
func running(_ runtime: Runtime?) async throws -> Runtime {
  if let runtime { return runtime }
  return try await Runtime.start()
}
