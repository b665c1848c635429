import Foundation
import Observation
import Testing

@testable import ChatWindow

private let calf = ProcessInfo.processInfo.environment["COWMLX_TEST_MODEL"] ?? "models/calf"

@MainActor @Suite struct ConversationTests {
  @Test func anAnswerGrowsInTheLastMessage() async throws {
    let conversation = Conversation()
    conversation.draft = "What is 3 + 4?"
    #expect(!conversation.canSend)
    await conversation.load(calf)
    #expect(conversation.loaded == 1)
    #expect(conversation.canSend)
    let (changes, changed) = AsyncStream<Void>.makeStream()
    withObservationTracking {
      _ = conversation.messages
    } onChange: {
      changed.yield()
    }
    conversation.send()
    #expect(conversation.isAnswering && conversation.draft.isEmpty)
    for await _ in changes { break }  // a view would draw again
    await conversation.finished()
    #expect(conversation.messages.map(\.text) == ["What is 3 + 4?", "3 + 4 = 7."])
    #expect(!conversation.isAnswering && conversation.problem == nil)
  }

  @Test func anAnswerCanBeStopped() async throws {
    let conversation = Conversation()
    await conversation.load(calf)
    conversation.draft = "Tell me a story."
    conversation.send()
    conversation.stop()
    await conversation.finished()
    #expect(!conversation.isAnswering)
    #expect(conversation.messages.last?.text.hasSuffix("…") == true)
    conversation.draft = "What is 3 + 4?"
    conversation.send()
    await conversation.finished()
    #expect(conversation.messages.last?.text == "3 + 4 = 7.")
  }

  @Test func aProblemIsShown() async throws {
    let conversation = Conversation()
    await conversation.load("/nowhere")
    #expect(conversation.problem?.contains("/nowhere") == true)
    #expect(!conversation.canSend)
  }
}
