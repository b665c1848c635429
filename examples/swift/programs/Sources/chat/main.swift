// Talk to a model that may call tools, a line at a time: chat MODEL < questions
import CowMLX
import Foundation

/// The time, which no model knows.
struct Clock: Tool {
  struct Arguments: Codable {}

  let name = "get_time"
  let description = "Get the present time of day."

  func call(arguments: Arguments) async throws -> String {
    Date.now.formatted(date: .omitted, time: .shortened)
  }
}

/// Exact products, which models rarely know.
struct Calculator: Tool {
  struct Arguments: Codable {
    let a: Double
    let b: Double
  }

  let name = "multiply"
  let description = "Multiply two numbers."

  func call(arguments: Arguments) async throws -> String { "\(arguments.a * arguments.b)" }
}

func write(_ text: String) { FileHandle.standardOutput.write(Data(text.utf8)) }

guard CommandLine.arguments.count == 2 else {
  FileHandle.standardError.write(Data("usage: chat MODEL\n".utf8))
  exit(2)
}
do {
  let model = try await Model.load(CommandLine.arguments[1])
  let chat = Chat(try await model.context(), tools: [Clock(), Calculator()])
  while let question = readLine() {
    for try await event in chat.send(question) {
      switch event {
      case .text(let text): write(text)
      case .toolCall(let call): write("[\(call.name) \(call.arguments)]\n")
      case .reasoning, .thinkingCut, .end: break
      }
    }
    write("\n")
  }
} catch {
  FileHandle.standardError.write(Data("\(error)\n".utf8))
  exit(1)
}
