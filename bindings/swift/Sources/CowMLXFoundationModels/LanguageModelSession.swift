import CowMLX
import Foundation
import Observation

public typealias Tool = CowMLX.Tool

/// A conversation with a model. One response at a time. Views observe `transcript` and `isResponding`.
public final class LanguageModelSession: Observable, Sendable {
  private struct State {
    var chat: Task<Chat, any Error>?
    var prewarming: Task<Void, Never>?
    var transcript: Transcript
  }

  private let model: SystemLanguageModel
  private let tools: [any Tool]
  private let state: Locked<State>
  private let responding = Locked(false)
  private let registrar = ObservationRegistrar()

  /// Continues a conversation.
  public init(
    model: SystemLanguageModel = .default, tools: [any Tool] = [], transcript: Transcript
  ) {
    (self.model, self.tools) = (model, tools)
    state = Locked(State(transcript: transcript))
  }

  public convenience init(
    model: SystemLanguageModel = .default, tools: [any Tool] = [], instructions: Instructions? = nil
  ) {
    let told = instructions.map {
      Transcript.Entry.instructions(.init(segments: [.text(.init(content: $0.text))]))
    }
    self.init(model: model, tools: tools, transcript: Transcript(entries: told.map { [$0] } ?? []))
  }

  public convenience init(
    model: SystemLanguageModel = .default, tools: [any Tool] = [], instructions: String
  ) {
    self.init(model: model, tools: tools, instructions: Instructions(instructions))
  }

  public convenience init(
    model: SystemLanguageModel = .default, tools: [any Tool] = [],
    @InstructionsBuilder instructions: () throws -> Instructions
  ) rethrows {
    self.init(model: model, tools: tools, instructions: try instructions())
  }

  /// The entries so far, without those of a response that has not ended.
  public var transcript: Transcript {
    registrar.access(self, keyPath: \.transcript)
    return state.withLock { $0.transcript }
  }

  public var isResponding: Bool {
    registrar.access(self, keyPath: \.isResponding)
    return responding.withLock { $0 }
  }

  /// Begins or ends a response. Returns whether one was running before.
  func setResponding(_ isResponding: Bool) -> Bool {
    registrar.withMutation(of: self, keyPath: \.isResponding) {
      responding.withLock { current in
        defer { current = isResponding }
        return current
      }
    }
  }

  /// Loads the model, and processes the beginning of the conversation, before a response needs it. A response
  /// waits until that has ended; another call of prewarm cancels it.
  public func prewarm(promptPrefix: Prompt? = nil) {
    state.withLock { state in
      state.prewarming = Task { [previous = state.prewarming] in
        previous?.cancel()
        await previous?.value
        try? await process(promptPrefix)
      }
    }
  }

  private func process(_ promptPrefix: Prompt?) async throws {
    let chat = try await chat()
    var messages = await chat.messages
    if let promptPrefix { messages.append(.user(promptPrefix.text)) }
    guard !messages.isEmpty, !isResponding else { return }
    let options = ChatOptions(tools: try tools.map { try $0.definition })
    let tokens = try await chat.context.model.chatPrompt(messages, options: options)
    try await chat.context.begin(tokens, params: .init(maxTokens: 0))
  }

  /// Waits for the end of a prewarm, which a cancel of this task cancels. The context is busy until then.
  func prewarmed() async {
    guard let prewarming = state.withLock({ $0.prewarming }) else { return }
    await withTaskCancellationHandler {
      await prewarming.value
    } onCancel: {
      prewarming.cancel()
    }
  }

  /// The conversation, which begins when it is first needed.
  func chat() async throws -> Chat {
    let task = state.withLock { state in
      let task =
        state.chat
        ?? Task { [model, tools, messages = state.transcript.messages] in
          Chat(try await model.model().context(), tools: tools, messages: messages)
        }
      state.chat = task
      return task
    }
    do {
      return try await task.value
    } catch {
      state.withLock { $0.chat = nil }  // a later response tries again
      throw error
    }
  }

  /// Adds what a response has added, and returns it.
  func update() async throws -> ArraySlice<Transcript.Entry> {
    let transcript = Transcript(await (try chat()).messages)
    return registrar.withMutation(of: self, keyPath: \.transcript) {
      state.withLock { state in
        let count = Swift.min(state.transcript.count, transcript.count)
        state.transcript = transcript
        return transcript.entries[count...]
      }
    }
  }

  /// What a response has generated.
  public struct Response<Content: Sendable>: Sendable {
    public let content: Content
    public let rawContent: GeneratedContent
    public let transcriptEntries: ArraySlice<Transcript.Entry>
  }

  /// Why there is no response.
  ///
  /// The last four cases never occur; programs for the framework name them.
  public enum GenerationError: Error, LocalizedError, Sendable {
    /// There is no model, or it cannot be loaded.
    case assetsUnavailable(Context)
    /// The conversation is longer than the model's context.
    case exceededContextWindowSize(Context)
    /// The session is responding already.
    case concurrentRequests(Context)
    /// The response is not a value of the type, such as one that was cut short.
    case decodingFailure(Context)
    /// The type, or its guides, cannot be made a grammar.
    case unsupportedGuide(Context)
    /// The framework's model judges content.
    case guardrailViolation(Context)
    /// The framework's model refuses requests.
    case refusal(Refusal, Context)
    /// The framework limits requests of programs in the background.
    case rateLimited(Context)
    /// The framework's model has a list of languages.
    case unsupportedLanguageOrLocale(Context)

    public var errorDescription: String? { context.debugDescription }

    private var context: Context {
      switch self {
      case .assetsUnavailable(let context), .exceededContextWindowSize(let context),
        .concurrentRequests(let context), .decodingFailure(let context),
        .unsupportedGuide(let context), .guardrailViolation(let context),
        .refusal(_, let context), .rateLimited(let context),
        .unsupportedLanguageOrLocale(let context):
        context
      }
    }

    /// What a model has refused.
    public struct Refusal: Sendable {
      let transcriptEntries: [Transcript.Entry]

      public init(transcriptEntries: [Transcript.Entry]) {
        self.transcriptEntries = transcriptEntries
      }
    }

    public struct Context: Sendable {
      public let debugDescription: String
      /// The library's error, if it is one.
      public let underlyingErrors: [any Error]

      public init(debugDescription: String, underlyingErrors: [any Error] = []) {
        (self.debugDescription, self.underlyingErrors) = (debugDescription, underlyingErrors)
      }
    }
  }

  /// A tool has failed.
  public typealias ToolCallError = CowMLX.ToolCallError
}
