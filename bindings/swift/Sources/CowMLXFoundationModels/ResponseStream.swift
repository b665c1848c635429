import CowMLX

extension LanguageModelSession {
  /// What a response has generated so far, whenever there is more.
  public struct ResponseStream<Content: Generable>: AsyncSequence, Sendable {
    public typealias Element = Snapshot

    public struct Snapshot: Sendable {
      public let content: Content.PartiallyGenerated
      public let rawContent: GeneratedContent
    }

    let session: LanguageModelSession
    let prompt: String
    let schema: Result<GenerationSchema?, any Error>
    let options: GenerationOptions
    let includesSchema: Bool
    /// The content so far, and the whole if it is complete.
    let read: @Sendable (GeneratedContent) throws -> (Content.PartiallyGenerated, Content?)

    public func makeAsyncIterator() -> Iterator { Iterator(stream: self) }

    /// The response at its end.
    public func collect() async throws -> Response<Content> {
      var iterator = makeAsyncIterator()
      while try await iterator.next() != nil {}
      return try iterator.response()
    }

    public struct Iterator: AsyncIteratorProtocol {
      fileprivate let stream: ResponseStream
      private var events: Answer.Iterator?
      private var lease: Lease?
      private var text = ""
      private var isText = false
      private var last = GeneratedContent(.string(""))
      private var added: ArraySlice<Transcript.Entry> = []
      private var hasEnded = false

      fileprivate init(stream: ResponseStream) { self.stream = stream }

      public mutating func next() async throws -> Snapshot? {
        guard !hasEnded else { return nil }
        do {
          if events == nil { try await begin() }
          while let event = try await events?.next() {
            switch event {
            case .toolCall: text = ""  // the text before it is none of the response
            case .text(let part):
              text += part
              if let snapshot = try snapshot() { return snapshot }
            default: break
            }
          }
          added = try await stream.session.update()
          end()
          return nil
        } catch {
          end()
          throw GenerationError(error) ?? error
        }
      }

      private mutating func begin() async throws {
        lease = try Lease.take(stream.session)
        let schema = try stream.schema.get()
        isText = schema == nil
        var prompt = stream.prompt
        if let schema, stream.includesSchema {
          prompt += "\n\nAnswer with JSON of this schema: \(schema.schema.text)"
        }
        let params = stream.options.params
        await stream.session.prewarmed()
        let chat = try await stream.session.chat()
        events = chat.send(prompt, params: params, schema: schema?.schema).makeAsyncIterator()
      }

      private mutating func end() { (events, lease, hasEnded) = (nil, nil, true) }

      private mutating func snapshot() throws -> Snapshot? {
        if isText {
          last = GeneratedContent(.string(text))
        } else if let content = try? GeneratedContent(json: text) {
          last = content
        } else {
          return nil
        }
        return Snapshot(content: try stream.read(last).0, rawContent: last)
      }

      fileprivate func response() throws -> Response<Content> {
        do {
          guard let content = try stream.read(last).1 else {
            throw GenerationError.decodingFailure(
              .init(debugDescription: "the response was cut short: \(text)"))
          }
          return Response(content: content, rawContent: last, transcriptEntries: added)
        } catch let error as GenerationError {
          throw error
        } catch {
          throw GenerationError.decodingFailure(
            .init(debugDescription: "\(error)", underlyingErrors: [error]))
        }
      }
    }
  }

  /// Keeps a session for one response.
  final class Lease: Sendable {
    private let session: LanguageModelSession

    private init(_ session: LanguageModelSession) { self.session = session }

    static func take(_ session: LanguageModelSession) throws -> Lease {
      guard session.setResponding(true) else { return Lease(session) }
      throw GenerationError.concurrentRequests(
        .init(debugDescription: "another response of the session has not ended"))
    }

    deinit { _ = session.setResponding(false) }
  }
}

extension LanguageModelSession.GenerationError {
  /// The error of a response that the library's error is; nil for other errors.
  init?(_ error: any Error) {
    guard let error = error as? CowMLXError else { return nil }
    let context = Context(debugDescription: error.message, underlyingErrors: [error])
    switch (error, error.reason) {
    case (.contextFull, _): self = .exceededContextWindowSize(context)
    case (_, .contextBusy): self = .concurrentRequests(context)
    case (_, .invalidGrammar): self = .unsupportedGuide(context)
    case (.notFound, _), (.malformed, _): self = .assetsUnavailable(context)
    default:
      guard error.operation == "JSONSchema" else { return nil }
      self = .unsupportedGuide(context)
    }
  }
}
