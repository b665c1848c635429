import CCowMLX

/// An event of a chat.
public enum ChatEvent: Hashable, Sendable {
  /// A part of the answer.
  case text(String)
  /// A part of the model's thinking before the answer.
  case reasoning(String)
  /// A whole tool call.
  case toolCall(ToolCall)
  /// Behind thinking that `thinkingTokens` has cut.
  case thinkingCut
  /// The last event.
  case end(Finish)
}

/// The events of a chat, which begins with the first `next()` of an iterator.
///
/// A loop that ends early cancels the chat, and so does the end of its task, which throws `CancellationError`.
public struct ChatEvents: AsyncSequence, Sendable {
  public typealias Element = ChatEvent

  let context: Context
  let messages: [ChatMessage]
  let options: ChatOptions
  let params: GenerationParams
  let listener: GenerationListener

  public func makeAsyncIterator() -> Iterator { Iterator(events: self) }

  public struct Iterator: AsyncIteratorProtocol {
    fileprivate let events: ChatEvents
    private var loop: Loop<ChatEvent>?
    private var hasEnded = false

    fileprivate init(events: ChatEvents) { self.events = events }

    /// The next event; nil after `.end`.
    public mutating func next() async throws -> ChatEvent? {
      guard !hasEnded else { return nil }
      hasEnded = true  // unless this succeeds
      if loop == nil { loop = try await events.begin() }
      let event = try await loop?.next()
      if case .end = event { return event }
      hasEnded = event == nil
      return event
    }
  }

  private func begin() async throws -> Loop<ChatEvent> {
    let conversation = try Conversation(messages, options)
    let taker: Taker<ChatEvent> = { try takeEvent($0) }
    return try await Loop(context, "Context.chat", listener, taker) {
      (handle) throws(CowMLXError) in
      try params.withRaw { (raw) throws(CowMLXError) in
        listener.hear(of: &raw)
        let (start, count) = (conversation.messages.start, conversation.messages.count)
        try check(
          api.context_chat_async(handle, start, count, &raw, conversation.options?.start))
      }
    }
  }
}

private func takeEvent(_ context: Int32) throws(CowMLXError) -> Taken<ChatEvent> {
  var raw = cow_mlx_event()
  raw.struct_size = MemoryLayout<cow_mlx_event>.size
  try check(api.context_next_event(context, &raw))
  let text = UnsafeRawBufferPointer(start: raw.text, count: raw.length)
  let content = String(decoding: text, as: UTF8.self)
  switch raw.kind {
  case Int32(COW_MLX_EVENT_TEXT):
    return Taken(element: .text(content), isLast: false)
  case Int32(COW_MLX_EVENT_REASONING):
    return Taken(element: .reasoning(content), isLast: false)
  case Int32(COW_MLX_EVENT_TOOL_CALL):
    let call = ToolCall(name: String(cString: raw.name), arguments: content)
    return Taken(element: .toolCall(call), isLast: false)
  case Int32(COW_MLX_EVENT_THINKING_CUT):
    return Taken(element: .thinkingCut, isLast: false)
  default:
    let finish = Finish(code: raw.finish) ?? .stop
    return Taken(element: .end(finish), isLast: true, isCanceled: finish == .canceled)
  }
}

extension Context {
  /// Answers a conversation: its events, as they come. No thread waits for them.
  ///
  /// The same conversation with one more message continues from the context's tokens. The first `next()` begins the
  /// chat and throws its errors.
  public func chat(
    _ messages: [ChatMessage], options: ChatOptions = ChatOptions(),
    params: GenerationParams = GenerationParams(),
    onProgress: (@Sendable (Int, Int) -> Bool)? = nil, onLogits: LogitsFunction? = nil
  ) -> ChatEvents {
    ChatEvents(
      context: self, messages: messages, options: options, params: params,
      listener: GenerationListener(onProgress, onLogits))
  }
}
