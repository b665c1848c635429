import CowMLX

/// What a person says to a model.
public struct Prompt: Hashable, Sendable {
  let text: String

  public init(_ content: some PromptRepresentable) { self = content.promptRepresentation }

  public init(@PromptBuilder _ content: () throws -> Prompt) rethrows { self = try content() }

  init(text: String) { self.text = text }
}

/// A type that can be said to a model.
public protocol PromptRepresentable: ToolOutput {
  var promptRepresentation: Prompt { get }
}

extension PromptRepresentable {
  public var toolText: String { promptRepresentation.text }
}

extension Prompt: PromptRepresentable {
  public var promptRepresentation: Prompt { self }
}

extension String: PromptRepresentable {
  public var promptRepresentation: Prompt { Prompt(text: self) }
}

extension Swift.Array: PromptRepresentable where Element: PromptRepresentable {
  public var promptRepresentation: Prompt {
    Prompt(text: map(\.promptRepresentation.text).joined(separator: "\n"))
  }
}

/// Builds prompts of several lines.
@resultBuilder public enum PromptBuilder {
  public static func buildExpression(_ line: some PromptRepresentable) -> Prompt {
    line.promptRepresentation
  }
  public static func buildBlock(_ lines: Prompt...) -> Prompt { lines.promptRepresentation }
  public static func buildArray(_ lines: [Prompt]) -> Prompt { lines.promptRepresentation }
  public static func buildOptional(_ lines: Prompt?) -> Prompt { lines ?? Prompt(text: "") }
  public static func buildEither(first lines: Prompt) -> Prompt { lines }
  public static func buildEither(second lines: Prompt) -> Prompt { lines }
  public static func buildLimitedAvailability(_ lines: Prompt) -> Prompt { lines }
}

/// Text for a model before a conversation.
public struct Instructions: Hashable, Sendable {
  let text: String

  public init(_ content: some InstructionsRepresentable) {
    self = content.instructionsRepresentation
  }

  public init(@InstructionsBuilder _ content: () throws -> Instructions) rethrows {
    self = try content()
  }

  init(text: String) { self.text = text }
}

/// A type that can instruct a model.
public protocol InstructionsRepresentable {
  var instructionsRepresentation: Instructions { get }
}

extension Instructions: InstructionsRepresentable {
  public var instructionsRepresentation: Instructions { self }
}

extension String: InstructionsRepresentable {
  public var instructionsRepresentation: Instructions { Instructions(text: self) }
}

extension Swift.Array: InstructionsRepresentable where Element: InstructionsRepresentable {
  public var instructionsRepresentation: Instructions {
    Instructions(text: map(\.instructionsRepresentation.text).joined(separator: "\n"))
  }
}

/// Builds instructions of several lines.
@resultBuilder public enum InstructionsBuilder {
  public static func buildExpression(_ line: some InstructionsRepresentable) -> Instructions {
    line.instructionsRepresentation
  }
  public static func buildBlock(_ lines: Instructions...) -> Instructions {
    lines.instructionsRepresentation
  }
  public static func buildArray(_ lines: [Instructions]) -> Instructions {
    lines.instructionsRepresentation
  }
  public static func buildOptional(_ lines: Instructions?) -> Instructions {
    lines ?? Instructions(text: "")
  }
  public static func buildEither(first lines: Instructions) -> Instructions { lines }
  public static func buildEither(second lines: Instructions) -> Instructions { lines }
  public static func buildLimitedAvailability(_ lines: Instructions) -> Instructions { lines }
}
