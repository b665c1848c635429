import CowMLX
import Foundation
import Observation
import Testing

@testable import CowMLXFoundationModels

private let calf = SystemLanguageModel(
  folder: ProcessInfo.processInfo.environment["COWMLX_TEST_MODEL"] ?? "models/calf")

struct Animal: Generable, Equatable {
  let name, colour, sound: String
  let legs: Int
  let home, food: String
}

struct Weather: Tool {
  let name = "get_weather"
  let description = "Get the weather in a city."

  struct Arguments: Codable { let city: String }
  struct Failure: Error {}

  func call(arguments: Arguments) async throws -> String {
    guard arguments.city == "Rome" else { throw Failure() }
    return "sunny, 21 degrees"
  }
}

/// The name of the error that a call throws.
func kind(_ call: () async throws -> Void) async -> String? {
  do {
    try await call()
    return nil
  } catch {
    return Mirror(reflecting: error).children.first?.label ?? "\(error)"
  }
}

@Suite struct SessionTests {
  @Test func aSessionResponds() async throws {
    let session = LanguageModelSession(model: calf)
    let response = try await session.respond(to: "What colour is a fox?")
    #expect(response.content == "A fox is red.")
    #expect(response.transcriptEntries.count == 2)
    #expect(!session.isResponding)
    try await session.respond { "And what does it eat?" }
    #expect(session.transcript.count == 4)
  }

  @Test func instructionsComeFirst() async throws {
    let session = LanguageModelSession(model: calf) {
      "You are Ada."
      if true { "You are kind." }
    }
    let told = Transcript.Entry.instructions(
      .init(segments: [.text(.init(content: "You are Ada.\nYou are kind."))]))
    #expect(session.transcript.first == told)
    session.prewarm()
    #expect(try await !session.respond(to: "Hello").content.isEmpty)
    let continued = LanguageModelSession(model: calf, transcript: session.transcript)
    #expect(try await !continued.respond(to: "What colour is a fox?").content.isEmpty)
    #expect(continued.transcript.count == 5)
  }

  @Test func aResponseWaitsForThePrewarm() async throws {
    let session = LanguageModelSession(
      model: calf, instructions: String(repeating: "a fox ", count: 600))
    let context = try await session.chat().context
    session.prewarm(promptPrefix: Prompt("Hello"))
    session.prewarm()
    while try await context.info()["prompt"]?.int ?? 0 == 0 { await Task.yield() }
    try await session.respond(to: "Hello", options: .init(maximumResponseTokens: 4))
    #expect(try await context.info()["reused"]?.int ?? 0 > 500)
  }

  @Test func viewsSeeTheTranscriptChange() async throws {
    let session = LanguageModelSession(model: calf)
    let changes = AsyncStream<Void>.makeStream()
    withObservationTracking {
      #expect(session.transcript.isEmpty)
      #expect(!session.isResponding)
    } onChange: {
      changes.continuation.finish()
    }
    try await session.respond(to: "Hello")
    for await _ in changes.stream {}
    #expect(session.transcript.count == 2)
    let json = try JSONEncoder().encode(session.transcript)
    #expect(try JSONDecoder().decode(Transcript.self, from: json) == session.transcript)
  }

  @Test func aStreamGrowsToTheResponse() async throws {
    let session = LanguageModelSession(model: calf)
    var contents: [String] = []
    for try await snapshot in session.streamResponse(to: "What colour is a fox?") {
      contents.append(snapshot.content)
    }
    #expect(contents.count > 1)
    #expect(contents.last == "A fox is red.")
    #expect(zip(contents, contents.dropFirst()).allSatisfy { $1.hasPrefix($0) })
  }

  @Test func aValueIsGenerated() async throws {
    let session = LanguageModelSession(model: calf)
    let response = try await session.respond(
      to: "Describe a fox as JSON.", generating: Animal.self, includeSchemaInPrompt: false)
    #expect(response.content.name == "fox")
    #expect(try response.rawContent.value(Int.self, forProperty: "legs") == 4)
    let other = LanguageModelSession(model: calf)
    var names: [String] = []
    let stream = other.streamResponse(
      to: "Describe a fox as JSON.", generating: Animal.self, includeSchemaInPrompt: false)
    for try await snapshot in stream {
      if let name: String = try snapshot.content.value(forProperty: "name") { names.append(name) }
    }
    #expect(names.last == "fox")
    #expect(names.count > 2)
  }

  @Test func aSchemaIsEnough() async throws {
    let session = LanguageModelSession(model: calf)
    let schema = GenerationSchema(.any(["yes", "no"]))
    let content = try await session.respond(to: "Is a fox red?", schema: schema).content
    #expect(try ["yes", "no"].contains(content.value(String.self)))
  }

  @Test func aToolIsCalled() async throws {
    let session = LanguageModelSession(model: calf, tools: [Weather()])
    let content = try await session.respond(to: "What is the weather in Rome?").content
    #expect(content.contains("sunny"))
    #expect(session.transcript.count == 4)
    await #expect(throws: LanguageModelSession.ToolCallError.self) {
      try await session.respond(to: "What is the weather in Paris?")
    }
    #expect(session.transcript.count == 4)
  }

  @Test func optionsAreUsed() async throws {
    let session = LanguageModelSession(model: calf)
    let options = GenerationOptions(
      sampling: .random(top: 50, seed: 3), temperature: 1.5, maximumResponseTokens: 4)
    let prompt = "Tell me a story about an owl."
    let first = try await session.respond(to: prompt, options: options).content
    let other = LanguageModelSession(model: calf)
    #expect(try await other.respond(to: prompt, options: options).content == first)
    #expect(first.count < 40)
    let threshold = GenerationOptions(sampling: .random(probabilityThreshold: 0.5, seed: 1))
    #expect(threshold.params.topP == 0.5)
    #expect(threshold.params.temperature == 1)
    #expect(GenerationOptions(sampling: .greedy, temperature: 2).params.temperature == 0)
  }

  /// What programs for the framework name.
  @Test func everyReasonHasItsCase() {
    func text(_ availability: SystemLanguageModel.Availability) -> String {
      switch availability {
      case .available: "available"
      case .unavailable(.deviceNotEligible): "device"
      case .unavailable(.appleIntelligenceNotEnabled): "settings"
      case .unavailable(.modelNotReady): "model"
      }
    }
    func text(_ error: any Error) -> String {
      switch error {
      case LanguageModelSession.GenerationError.guardrailViolation(let context):
        context.debugDescription
      case LanguageModelSession.GenerationError.refusal,
        LanguageModelSession.GenerationError
        .rateLimited, LanguageModelSession.GenerationError.unsupportedLanguageOrLocale:
        "refused"
      default: error.localizedDescription
      }
    }
    #expect(text(calf.availability) == "available")
    let context = LanguageModelSession.GenerationError.Context(debugDescription: "why")
    #expect(text(LanguageModelSession.GenerationError.guardrailViolation(context)) == "why")
    #expect(text(LanguageModelSession.GenerationError.decodingFailure(context)) == "why")
    let refusal = LanguageModelSession.GenerationError.Refusal(transcriptEntries: [])
    #expect(text(LanguageModelSession.GenerationError.refusal(refusal, context)) == "refused")
  }

  @Test func promptsAreTextsPromptsAndBuilders() async throws {
    let schema = try Animal.generationSchema
    let prompt = Prompt { "Describe a fox." }
    let session = LanguageModelSession(model: calf)
    _ = try await session.respond(to: prompt, schema: schema)
    _ = try await session.respond(schema: schema) { "Describe a fox." }
    _ = try await session.streamResponse(generating: Animal.self) { "Describe a fox." }.collect()
    _ = try await session.streamResponse(to: prompt, schema: schema).collect()
    _ = try await session.streamResponse(schema: schema) {
      if #available(macOS 14, *) { "Describe a fox." }
    }.collect()
    #expect(session.transcript.count == 10)
  }

  @Test func failuresHaveTheErrorsOfTheFramework() async throws {
    let session = LanguageModelSession(model: calf)
    var first = session.streamResponse(to: "Tell me a story.").makeAsyncIterator()
    #expect(try await first.next() != nil)
    #expect(session.isResponding)
    #expect(await kind { _ = try await session.respond(to: "Hello") } == "concurrentRequests")
    while try await first.next() != nil {}
    let long = String(repeating: "a fox ", count: 3000)
    #expect(await kind { _ = try await session.respond(to: long) } == "exceededContextWindowSize")
    let short = GenerationOptions(maximumResponseTokens: 3)
    let cut = await kind {
      _ = try await session.respond(to: "Describe a fox.", generating: Animal.self, options: short)
    }
    #expect(cut == "decodingFailure")
    let missing = LanguageModelSession(model: SystemLanguageModel(folder: "/no/such/folder"))
    #expect(await kind { _ = try await missing.respond(to: "Hello") } == "assetsUnavailable")
    #expect(
      SystemLanguageModel(folder: "/no/such/folder").availability == .unavailable(.modelNotReady))
    #expect(calf.isAvailable)
  }

  @Test(arguments: [
    ("", "null"), (#"{"a"#, "{}"), (#"{"a": 1, "b"#, #"{"a":1}"#), (#"{"a": "x"#, #"{"a":"x"}"#),
    (#"{"a": "x\"#, #"{"a":"x"}"#), (#"{"a": "x\\"#, #"{"a":"x\\"}"#),
    (#"{"a": "x\u00e"#, #"{"a":"x"}"#),
    (#"[1, 2"#, "[1]"), (#"[{"a": [true, fal"#, #"[{"a":[true]}]"#), (#"{"a": {}"#, #"{"a":{}}"#),
  ])
  func partsOfJSONAreValues(_ text: String, _ json: String) throws {
    let content = try GeneratedContent(json: text)
    #expect(content.jsonString == json)
    #expect(!content.isComplete)
  }
}
