import CCowMLX
import Foundation

/// A message of a conversation.
public struct ChatMessage: Hashable, Sendable {
  /// `"system"`, `"user"`, `"assistant"`, `"tool"`, or another that the model's template knows.
  public var role: String
  /// The text.
  public var content: String
  /// The calls of an assistant's message.
  public var toolCalls: [ToolCall]
  /// The call that a tool's message answers.
  public var toolCallID: String?
  /// The tool, or the person, who speaks.
  public var name: String?
  /// The thinking before an assistant's answer.
  public var reasoning: String?
  /// Other keys, for templates that read them.
  public var others: [String: JSONValue]

  /// Makes a message of any role.
  public init(
    role: String, content: String, toolCalls: [ToolCall] = [], toolCallID: String? = nil,
    name: String? = nil, reasoning: String? = nil, others: [String: JSONValue] = [:]
  ) {
    (self.role, self.content, self.toolCalls, self.toolCallID) = (
      role, content, toolCalls, toolCallID
    )
    (self.name, self.reasoning, self.others) = (name, reasoning, others)
  }

  /// Instructions for the model.
  public static func system(_ content: String) -> ChatMessage {
    .init(role: "system", content: content)
  }
  /// What the user says.
  public static func user(_ content: String) -> ChatMessage {
    .init(role: "user", content: content)
  }
  /// What the model has answered.
  public static func assistant(_ content: String, toolCalls: [ToolCall] = []) -> ChatMessage {
    .init(role: "assistant", content: content, toolCalls: toolCalls)
  }
  /// The result of a tool's call.
  public static func tool(_ content: String, name: String? = nil, callID: String? = nil)
    -> ChatMessage
  {
    .init(role: "tool", content: content, toolCallID: callID, name: name)
  }

  /// The message in the library's form.
  public var json: JSONValue {
    var members = others
    members["role"] = .string(role)
    if !content.isEmpty || toolCalls.isEmpty { members["content"] = .string(content) }
    if !toolCalls.isEmpty { members["tool_calls"] = .array(toolCalls.map(\.json)) }
    if let toolCallID { members["tool_call_id"] = .string(toolCallID) }
    if let name { members["name"] = .string(name) }
    if let reasoning { members["reasoning_content"] = .string(reasoning) }
    return .object(members)
  }
}

/// A call of a tool by a model.
public struct ToolCall: Hashable, Sendable {
  /// The tool's name.
  public var name: String
  /// A JSON object.
  public var arguments: String
  /// The call's id, which its result names; nil if the model gives none.
  public var id: String?

  /// Makes a call; `arguments` is a JSON object.
  public init(name: String, arguments: String, id: String? = nil) {
    (self.name, self.arguments, self.id) = (name, arguments, id)
  }

  var json: JSONValue {
    var members: [String: JSONValue] = [
      "type": "function",
      "function": ["name": .string(name), "arguments": .string(arguments)],
    ]
    if let id { members["id"] = .string(id) }
    return .object(members)
  }
}

/// Options of a chat.
public struct ChatOptions: Hashable, Sendable {
  /// The tools that the model may call.
  public var tools: [ToolDefinition]
  /// Whether the model has to call a tool.
  public var toolChoice: ToolChoice
  /// nil: true if the model marks its thinking.
  public var enableThinking: Bool?
  /// Continues the last message instead of answering it.
  public var continueFinalMessage: Bool
  /// Other options, such as variables that the model's template reads: see `cow_mlx_model_chat_prompt()`.
  public var others: [String: JSONValue]

  /// Whether the model has to call a tool.
  public enum ToolChoice: Hashable, Sendable {
    /// The model decides; it calls none; it calls at least one.
    case auto, none, required
    /// A call of this tool.
    case tool(String)
  }

  /// Makes options; those left out have the library's defaults.
  public init(
    tools: [ToolDefinition] = [], toolChoice: ToolChoice = .auto, enableThinking: Bool? = nil,
    continueFinalMessage: Bool = false, others: [String: JSONValue] = [:]
  ) {
    (self.tools, self.toolChoice, self.enableThinking) = (tools, toolChoice, enableThinking)
    (self.continueFinalMessage, self.others) = (continueFinalMessage, others)
  }

  /// The options in the library's form; nil: the defaults. The schemas of tools keep the order of
  /// their properties, which a dictionary does not.
  var text: String? {
    var members = others.map { ($0.key, $0.value.description) }.sorted { $0.0 < $1.0 }
    if !tools.isEmpty { members.append(("tools", "[\(tools.map(\.text).joined(separator: ","))]")) }
    switch toolChoice {
    case .auto: break
    case .none: members.append(("tool_choice", "\"none\""))
    case .required: members.append(("tool_choice", "\"required\""))
    case .tool(let name): members.append(("tool_choice", JSONValue.string(name).description))
    }
    if let enableThinking { members.append(("enable_thinking", "\(enableThinking)")) }
    if continueFinalMessage { members.append(("continue_final_message", "true")) }
    return members.isEmpty ? nil : objectText(members)
  }
}

/// The description of a tool for a model.
public struct ToolDefinition: Hashable, Sendable {
  /// The name that the model calls.
  public var name: String
  /// What the tool does and when to call it.
  public var description: String
  /// The schema of the arguments, an object.
  public var parameters: JSONSchema

  /// Makes a description with a schema of the arguments.
  public init(name: String, description: String, parameters: JSONSchema) {
    (self.name, self.description, self.parameters) = (name, description, parameters)
  }

  /// A tool whose arguments are the properties of a type.
  public init(
    name: String, description: String, arguments: (some Decodable).Type
  ) throws {
    self.init(name: name, description: description, parameters: try JSONSchema(of: arguments))
  }

  var text: String {
    let function = objectText([
      ("name", JSONValue.string(name).description),
      ("description", JSONValue.string(description).description),
      ("parameters", parameters.text),
    ])
    return objectText([("type", "\"function\""), ("function", function)])
  }
}

/// A JSON object with its members in this order; values are JSON.
func objectText(_ members: [(String, String)]) -> String {
  let members = members.map { "\(JSONValue.string($0.0).description):\($0.1)" }
  return "{\(members.joined(separator: ","))}"
}

/// Messages and options in C's form.
struct Conversation: Sendable {
  let messages: CText
  let options: CText?

  init(_ messages: [ChatMessage], _ options: ChatOptions) throws(CowMLXError) {
    let list = JSONValue.array(messages.map(\.json))
    self.messages = try CText("Context.chat", "messages", list.description)
    if let text = options.text {
      self.options = try CText("Context.chat", "options", text)
    } else {
      self.options = nil
    }
  }
}
