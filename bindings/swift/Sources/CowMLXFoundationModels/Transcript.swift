import CowMLX

/// The entries of a session.
public struct Transcript: RandomAccessCollection, Codable, Hashable, Sendable {
  var entries: [Entry]

  public init(entries: some Sequence<Entry> = []) { self.entries = [Entry](entries) }

  public var startIndex: Int { 0 }
  public var endIndex: Int { entries.count }
  public subscript(index: Int) -> Entry { entries[index] }

  public enum Entry: Codable, Hashable, Sendable {
    case instructions(Instructions)
    case prompt(Prompt)
    case toolCalls(ToolCalls)
    case toolOutput(ToolOutput)
    case response(Response)
  }

  /// A part of an entry.
  public enum Segment: Codable, Hashable, Sendable {
    case text(TextSegment)
    case structure(StructuredSegment)
  }

  public struct TextSegment: Codable, Hashable, Sendable {
    public var content: String
    public init(content: String) { self.content = content }
  }

  public struct StructuredSegment: Codable, Hashable, Sendable {
    public var content: GeneratedContent
    public init(content: GeneratedContent) { self.content = content }
  }

  public struct Instructions: Codable, Hashable, Sendable {
    public var segments: [Segment]
    public init(segments: [Segment]) { self.segments = segments }
  }

  public struct Prompt: Codable, Hashable, Sendable {
    public var segments: [Segment]
    public init(segments: [Segment]) { self.segments = segments }
  }

  public struct ToolCalls: Codable, Hashable, Sendable {
    public var calls: [ToolCall]
    public init(_ calls: [ToolCall]) { self.calls = calls }
  }

  public struct ToolCall: Codable, Hashable, Sendable {
    public var toolName: String
    public var arguments: GeneratedContent
  }

  public struct ToolOutput: Codable, Hashable, Sendable {
    public var toolName: String
    public var segments: [Segment]
  }

  public struct Response: Codable, Hashable, Sendable {
    public var segments: [Segment]
    public init(segments: [Segment]) { self.segments = segments }
  }
}

extension Transcript {
  /// The entries of messages.
  init(_ messages: [ChatMessage]) {
    entries = messages.flatMap { message -> [Entry] in
      let text = [Segment.text(.init(content: message.content))]
      switch message.role {
      case "system": return [.instructions(.init(segments: text))]
      case "user": return [.prompt(.init(segments: text))]
      case "tool": return [.toolOutput(.init(toolName: message.name ?? "", segments: text))]
      default:
        let calls = message.toolCalls.map { call in
          let arguments = try? GeneratedContent(json: call.arguments)
          return ToolCall(
            toolName: call.name, arguments: arguments ?? .init(.string(call.arguments)))
        }
        let response = message.content.isEmpty ? [] : [Entry.response(.init(segments: text))]
        return (calls.isEmpty ? [] : [.toolCalls(.init(calls))]) + response
      }
    }
  }

  /// The messages of the entries.
  var messages: [ChatMessage] {
    entries.map { entry in
      switch entry {
      case .instructions(let told): .system(told.segments.text)
      case .prompt(let said): .user(said.segments.text)
      case .toolOutput(let output): .tool(output.segments.text, name: output.toolName)
      case .response(let response): .assistant(response.segments.text)
      case .toolCalls(let calls):
        .assistant(
          "",
          toolCalls: calls.calls.map {
            .init(name: $0.toolName, arguments: $0.arguments.jsonString)
          })
      }
    }
  }
}

extension [Transcript.Segment] {
  fileprivate var text: String {
    map { segment in
      switch segment {
      case .text(let text): text.content
      case .structure(let structure): structure.content.jsonString
      }
    }.joined(separator: "\n")
  }
}
