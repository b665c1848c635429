import Foundation

/// A function that a model may call.
///
///     struct Weather: Tool {
///       let name = "get_weather"
///       let description = "Get the weather in a city."
///       struct Arguments: Codable { let city: String }
///       func call(arguments: Arguments) async throws -> String { "sunny, 21 degrees" }
///     }
public protocol Tool: Sendable {
  /// What the model gives to a call.
  associatedtype Arguments: Decodable
  /// What a call returns.
  associatedtype Output: ToolOutput

  /// The name that the model calls.
  var name: String { get }
  /// What the tool does and when to call it.
  var description: String { get }

  /// Does what the model asks for.
  func call(arguments: Arguments) async throws -> Output
}

extension Tool {
  public var name: String { "\(Self.self)" }

  /// The description of the tool for a model.
  public var definition: ToolDefinition {
    get throws {
      try ToolDefinition(name: name, description: description, arguments: Arguments.self)
    }
  }

  /// Calls the tool with the arguments of a model, and returns the result as text for the model.
  public func respond(to call: ToolCall) async throws -> String {
    let decoder = JSONDecoder()
    decoder.dateDecodingStrategy = .iso8601
    let arguments = try decoder.decode(Arguments.self, from: Data(call.arguments.utf8))
    return try await self.call(arguments: arguments).toolText
  }
}

/// The error of a tool that a chat has called.
public struct ToolCallError: Error {
  /// The tool that was called.
  public var tool: any Tool
  /// What it threw.
  public var underlyingError: any Error

  /// Makes an error of a tool.
  public init(tool: any Tool, underlyingError: any Error) {
    (self.tool, self.underlyingError) = (tool, underlyingError)
  }
}

/// What a tool returns.
public protocol ToolOutput {
  /// The text for the model.
  var toolText: String { get throws }
}

extension String: ToolOutput {
  public var toolText: String { self }
}

extension JSONValue: ToolOutput {
  public var toolText: String { description }
}

extension Swift.Array: ToolOutput where Element: ToolOutput {
  public var toolText: String {
    get throws { try map { try $0.toolText }.joined(separator: "\n") }
  }
}
