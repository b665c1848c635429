import CowMLX
import Foundation
import Testing

/// The code of the tabs of docs/guides, which tests compare with this file.
@Suite struct GuideTests {
  @Test func aConversation() async throws {
    let context = try await context()
    let chat = Chat(context, instructions: "You are called Bella.")
    for question in ["What colour is a fox?", "And what does it eat?"] {
      var answer = ""
      for try await case .text(let text) in chat.send(question) {
        answer += text  // leaving the loop cancels
      }
      print(answer)
    }
    #expect(await chat.messages.map(\.content).suffix(3).first == "A fox is red.")
    #expect(await chat.messages.last?.content == "A fox eats berries.")
  }

  @Test func tools() async throws {
    let context = try await context()
    struct GetWeather: Tool {
      let name = "get_weather"
      let description = "Get the weather in a city."

      struct Arguments: Codable { let city: String }

      func call(arguments: Arguments) async throws -> String {
        print("[\(name) \(arguments.city)]")
        return "sunny, 21 degrees"
      }
    }

    // The chat calls the tool, and sends its result to the model.
    let chat = Chat(context, tools: [GetWeather()])
    let answer = try await chat.respond(to: "What is the weather in Rome?")
    print(answer)
    #expect(answer.contains("sunny"))
  }

  @Test func structuredOutput() async throws {
    let context = try await context()
    let schema = JSONSchema.object([
      .init("name", .any(["cow", "fox", "owl"])),
      .init("legs", .integer(maximum: 4)),
    ])
    let params = GenerationParams(grammar: .json(schema))
    var answer = ""
    for try await case .text(let text) in context.chat([.user("Describe a cow.")], params: params) {
      answer += text
    }
    print(answer)
    #expect(answer == #"{"name": "cow", "legs": 2 }"#)
  }

  @Test func search() async throws {
    let model = try await model()
    let documents = ["A fox eats berries.", "A cow says moo.", "The capital of France is Paris."]
    let vectors = try await model.embed(documents)
    let query = try await model.embed(["What sound does a cow make?"])[0]
    let similarities = vectors.map { vector in zip(vector, query).map(*).reduce(0, +) }
    let best = similarities.indices.max { similarities[$0] < similarities[$1] }!
    print((similarities[best] * 100).rounded() / 100, documents[best])
    #expect(best == 1)
  }
}
