import CCowMLX

/// A conversation: its messages, and the tools that the model may call.
///
///     let chat = Chat(context, instructions: "Answer in one sentence.", tools: [Weather()])
///     for try await event in chat.send("What is the weather in Rome?") { … }
///
/// A message enters the conversation with its whole answer. A loop that ends early leaves the conversation
/// as it was.
public actor Chat {
  /// The context that holds the conversation's tokens.
  public nonisolated let context: Context
  /// The tools that the model may call.
  public nonisolated let tools: [any Tool]
  /// The conversation so far.
  public private(set) var messages: [ChatMessage]
  /// Options of the next answers.
  public var params: GenerationParams
  /// Options of the next answers; their `tools` are added to those of the chat.
  public var options: ChatOptions
  nonisolated let isAnswering = Locked(false)

  /// The number of answers with tool calls to one message, before it is refused.
  public nonisolated let maximumToolRounds: Int

  /// Begins a conversation with `instructions`, a system message, followed by `messages`.
  public init(
    _ context: Context, instructions: String? = nil, tools: [any Tool] = [],
    params: GenerationParams = GenerationParams(), options: ChatOptions = ChatOptions(),
    messages: [ChatMessage] = [], maximumToolRounds: Int = 16
  ) {
    (self.context, self.tools, self.params, self.options) = (context, tools, params, options)
    self.messages = (instructions.map { [.system($0)] } ?? []) + messages
    self.maximumToolRounds = maximumToolRounds
  }

  /// Changes the options of the next answers.
  public func setParams(_ params: GenerationParams) { self.params = params }

  /// Says something to the model: the events of its answer. Tools are called as the model asks for them,
  /// and it answers with their results. The last event is `.end`.
  ///
  /// - Parameters:
  ///   - params: of this answer; nil: those of the chat.
  ///   - schema: of the JSON that the answer is.
  public nonisolated func send(
    _ text: String, params: GenerationParams? = nil, schema: JSONSchema? = nil
  ) -> Answer {
    Answer(chat: self, message: .user(text), params: params, grammar: schema.map(Grammar.json))
  }

  /// Says something to the model, and gives the text of its answer.
  public func respond(to text: String) async throws -> String {
    try await send(text).reduce(into: "") { answer, event in
      if case .text(let part) = event { answer += part }
    }
  }

  /// Says something to the model, and gives its answer as a value of a type.
  public func respond<Value: Decodable>(
    to text: String, as type: Value.Type = Value.self
  ) async throws -> Value {
    let answer = send(text, schema: try JSONSchema(of: type))
    var (json, finish) = ("", Finish?.none)
    for try await event in answer {
      switch event {
      case .text(let part): json += part
      case .toolCall: json = ""  // the text before it is none of the answer
      case .end(let reason): finish = reason
      default: break
      }
    }
    return try decoded(json, finish)
  }

  func add(_ turn: [ChatMessage]) { messages += turn }

  func round(of answer: Answer, after turn: [ChatMessage]) throws -> ChatEvents {
    var (options, params) = (options, answer.params ?? params)
    options.tools += try tools.map { try $0.definition }
    if let grammar = answer.grammar { params.grammar = grammar }
    return context.chat(messages + turn, options: options, params: params)
  }
}

/// The events of an answer of a chat.
public struct Answer: AsyncSequence, Sendable {
  public typealias Element = ChatEvent

  let chat: Chat
  let message: ChatMessage
  let params: GenerationParams?
  let grammar: Grammar?

  public func makeAsyncIterator() -> Iterator { Iterator(answer: self) }

  public struct Iterator: AsyncIteratorProtocol {
    private let answer: Answer
    private var turn: [ChatMessage] = []
    private var events: ChatEvents.Iterator?
    private var reply = ChatMessage.assistant("")
    private var rounds = 0
    private var lease: Lease?
    private var hasEnded = false

    fileprivate init(answer: Answer) { self.answer = answer }

    /// The next event; nil after `.end`.
    public mutating func next() async throws -> ChatEvent? {
      guard !hasEnded else { return nil }
      do {
        if lease == nil { try await begin() }
        while true {
          guard let event = try await events?.next() else { return end() }
          switch event {
          case .text(let text): reply.content += text
          case .reasoning(let text): reply.reasoning = (reply.reasoning ?? "") + text
          case .toolCall(let call): reply.toolCalls.append(call)
          case .thinkingCut: break
          case .end:
            turn.append(reply)
            if try await callTools() { continue }
            await answer.chat.add(turn)
            _ = end()
          }
          return event
        }
      } catch {
        _ = end()
        throw error
      }
    }

    private mutating func begin() async throws {
      lease = try Lease.take(answer.chat)
      turn = [answer.message]
      try await beginRound()
    }

    private mutating func beginRound() async throws {
      reply = .assistant("")
      events = try await answer.chat.round(of: answer, after: turn).makeAsyncIterator()
    }

    private mutating func end() -> ChatEvent? {
      (hasEnded, events, lease) = (true, nil, nil)
      return nil
    }

    /// Calls the tools that the model has asked for, if the chat has all of them, and begins the answer
    /// to their results.
    private mutating func callTools() async throws -> Bool {
      let calls = reply.toolCalls
      let known = Dictionary(answer.chat.tools.map { ($0.name, $0) }) { first, _ in first }
      guard !calls.isEmpty, calls.allSatisfy({ known[$0.name] != nil }) else { return false }
      rounds += 1
      guard rounds <= answer.chat.maximumToolRounds else {
        throw CowMLXError.refused(
          COW_MLX_EINVAL, "Chat.send", "limit_exceeded", argument: "maximumToolRounds",
          "the model has called tools \(rounds) times, at most \(rounds - 1) are allowed")
      }
      for call in calls {
        guard let tool = known[call.name] else { continue }
        do {
          let result = try await tool.respond(to: call)
          turn.append(.tool(result, name: call.name, callID: call.id))
        } catch {
          throw ToolCallError(tool: tool, underlyingError: error)
        }
      }
      try await beginRound()
      return true
    }
  }
}

/// Keeps a chat for one answer.
private final class Lease: Sendable {
  private let chat: Chat

  private init(_ chat: Chat) { self.chat = chat }

  static func take(_ chat: Chat) throws -> Lease {
    let wasAnswering = chat.isAnswering.withLock { isAnswering in
      defer { isAnswering = true }
      return isAnswering
    }
    guard wasAnswering else { return Lease(chat) }
    throw CowMLXError.refused(
      COW_MLX_ESTATE, "Chat.send", "context_busy", "another answer of the chat has not ended")
  }

  deinit { chat.isAnswering.withLock { $0 = false } }
}
