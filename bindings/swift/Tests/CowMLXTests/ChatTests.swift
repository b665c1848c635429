import CowMLX
import Testing

struct Weather: Tool {
  let name = "get_weather"
  let description = "Get the weather in a city."
  let asked = Heard<String>()
  var fails = false

  struct Arguments: Codable { let city: String }
  struct Failure: Error {}

  func call(arguments: Arguments) async throws -> String {
    asked.add(arguments.city)
    if fails { throw Failure() }
    return "sunny, 21 degrees"
  }
}

@Suite struct ChatTests {
  @Test func aChatAnswersInEvents() async throws {
    let context = try await context()
    let events = try await context.chat([.user("What colour is a fox?")])
      .reduce(into: []) { $0.append($1) }
    #expect(said(events) == "A fox is red.")
    #expect(events.last == .end(.stop))
    #expect(try await context.stats().generatedTokens > 3)
  }

  @Test func itGoesOnFromWhatTheContextHolds() async throws {
    let chat = Chat(try await context())
    #expect(try await chat.respond(to: "What colour is a fox?") == "A fox is red.")
    _ = try await chat.respond(to: "And what does it eat?")
    #expect(try await chat.context.stats().reusedTokens > 10)
    #expect(await chat.messages.map(\.role) == ["user", "assistant", "user", "assistant"])
  }

  @Test func optionsReachTheTemplate() async throws {
    let model = try await model()
    let with = try await model.chatPrompt([.user("Hello")])
    let without = try await model.chatPrompt(
      [.user("Hello")], options: .init(others: ["add_generation_prompt": false]))
    #expect(with.count > without.count)
    #expect(with.starts(with: without))
    let error = await failure {
      _ = try await model.chatPrompt([.user("Hello")], options: .init(others: ["nonsense": 1]))
    }
    #expect(error?.reason == .unknownOption)
  }

  @Test func malformedMessagesAreRefusedWithTheirPlace() async throws {
    let context = try await context()
    let error = await failure {
      for try await _ in context.chat([.init(role: "", content: "a")]) {}
    }
    guard case .invalidArgument? = error else { throw Unexpected(error) }
    #expect(error?.operation == "Context.chat")
    #expect(error?.message.contains("messages[0]") == true)
  }

  @Test func aToolIsCalledAndItsResultAnswered() async throws {
    let weather = Weather()
    let chat = Chat(try await context(), tools: [weather])
    let events = try await chat.send("What is the weather in Rome?").reduce(into: []) {
      $0.append($1)
    }
    #expect(weather.asked.all == ["Rome"])
    #expect(said(events).contains("sunny"))
    #expect(events.last == .end(.stop))
    #expect(await chat.messages.map(\.role) == ["user", "assistant", "tool", "assistant"])
  }

  @Test func aFailingToolLeavesTheConversationAsItWas() async throws {
    let chat = Chat(try await context(), tools: [Weather(fails: true)])
    do {
      _ = try await chat.respond(to: "What is the weather in Rome?")
      throw Unexpected(nil)
    } catch let error as ToolCallError {
      #expect(error.underlyingError is Weather.Failure)
      #expect(error.tool.name == "get_weather")
    }
    #expect(await chat.messages.isEmpty)
    #expect(try await chat.respond(to: "What colour is a fox?") == "A fox is red.")
  }

  @Test func aToolThatTheChatLacksIsAnEvent() async throws {
    let context = try await context()
    let options = ChatOptions(tools: [try Weather().definition], toolChoice: .required)
    let chat = Chat(context, options: options)
    let events = try await chat.send("What is the weather in Rome?").reduce(into: []) {
      $0.append($1)
    }
    let calls = events.compactMap { if case .toolCall(let call) = $0 { call } else { nil } }
    #expect(calls.map(\.name) == ["get_weather"])
    #expect(try calls.first.map { try JSONValue(parsing: $0.arguments) } == ["city": "Rome"])
  }

  @Test func oneAnswerAtATime() async throws {
    let chat = Chat(try await context())
    var first = chat.send("Tell me a story.").makeAsyncIterator()
    _ = try await first.next()
    let error = await failure { _ = try await chat.respond(to: "Hello") }
    #expect(error?.reason == .contextBusy)
    while try await first.next() != nil {}
    #expect(await chat.messages.count == 2)
  }

  @Test func anAnswerThatIsLeftIsNoneOfTheConversation() async throws {
    let chat = Chat(try await context(), instructions: "You are Ada.")
    for try await _ in chat.send("Tell me a story.") { break }
    #expect(await chat.messages == [.system("You are Ada.")])
    #expect(try await chat.respond(to: "What colour is a fox?").isEmpty == false)
  }
}
