import CCowMLX
import Foundation

extension Context {
  /// Generates a value of a type: its schema is the grammar of the output.
  ///
  ///     struct Animal: Codable { let name: String, legs: Int }
  ///     let fox = try await context.generate(as: Animal.self, from: tokens)
  ///
  /// - Throws: `CowMLXError.contextFull` if the output was cut short, since `params.maxTokens` or the context is too
  ///   small for it.
  public func generate<Value: Decodable>(
    as type: Value.Type = Value.self, from tokens: [Token],
    params: GenerationParams = GenerationParams()
  ) async throws -> Value {
    var params = params
    params.grammar = .json(try JSONSchema(of: type))
    let generation = generate(tokens, params: params)
    let text = try await generation.reduce(into: "") { $0 += $1.text }
    return try decoded(text, generation.finish)
  }

  /// Answers a conversation with a value of a type.
  public func respond<Value: Decodable>(
    to messages: [ChatMessage], as type: Value.Type = Value.self,
    options: ChatOptions = ChatOptions(),
    params: GenerationParams = GenerationParams()
  ) async throws -> Value {
    var params = params
    params.grammar = .json(try JSONSchema(of: type))
    var (text, finish) = ("", Finish?.none)
    for try await event in chat(messages, options: options, params: params) {
      switch event {
      case .text(let part): text += part
      case .end(let reason): finish = reason
      default: break
      }
    }
    return try decoded(text, finish)
  }
}

/// The value of a text that a schema was the grammar of.
func decoded<Value: Decodable>(_ text: String, _ finish: Finish?) throws -> Value {
  let decoder = JSONDecoder()
  decoder.dateDecodingStrategy = .iso8601
  do {
    return try decoder.decode(Value.self, from: Data(text.utf8))
  } catch {
    guard finish == .length || finish == .context || finish == .timeout else { throw error }
    throw CowMLXError.refused(
      COW_MLX_ECONTEXT, "Context.generate", "limit_exceeded", argument: "maxTokens",
      "the JSON was cut short after \(text.utf8.count) bytes; raise maxTokens or the context's size"
    )
  }
}
