import CowMLX
import Observation

/// The state of a chat window: what it shows, and what its buttons do.
///
/// It is a plain observable class, so it is compiled and tested on every system; the view in `ChatApp` only draws it.
@MainActor @Observable
public final class Conversation {
  /// A message as the window shows it.
  public struct Message: Identifiable, Sendable {
    /// Who says it.
    public enum Author: Sendable { case person, model }

    public let id: Int
    public let author: Author
    public var text: String
  }

  /// What has been said, and what the model is saying.
  public private(set) var messages: [Message] = []
  /// The text that is being written.
  public var draft = ""
  /// The fraction of the model that is loaded.
  public private(set) var loaded: Double = 0
  /// Whether the model is answering.
  public private(set) var isAnswering = false
  /// What went wrong last.
  public private(set) var problem: String?

  private var chat: Chat?
  private var answer: Task<Void, Never>?

  /// A conversation without a model.
  public init() {}

  /// Whether a message can be sent now.
  public var canSend: Bool { chat != nil && !isAnswering && !draft.isEmpty }

  /// Loads a model, and makes the conversation one with it.
  public func load(_ folder: String) async {
    problem = nil
    do {
      let model = try await Model.load(folder) { [weak self] fraction, _ in
        Task { @MainActor in self?.loaded = max(self?.loaded ?? 0, Double(fraction)) }
        return true
      }
      chat = Chat(try await model.context())
      loaded = 1
    } catch {
      problem = "\(error)"
    }
  }

  /// Sends the draft. The answer grows in the last message.
  public func send() {
    guard canSend, let chat else { return }
    let text = draft
    (draft, problem, isAnswering) = ("", nil, true)
    messages.append(Message(id: messages.count, author: .person, text: text))
    messages.append(Message(id: messages.count, author: .model, text: ""))
    answer = Task {
      do {
        for try await case .text(let part) in chat.send(text) {
          messages[messages.count - 1].text += part
        }
      } catch is CancellationError {
        messages[messages.count - 1].text += " …"
      } catch {
        problem = "\(error)"
      }
      isAnswering = false
    }
  }

  /// Ends the answer.
  public func stop() { answer?.cancel() }

  /// Waits until the answer has ended.
  public func finished() async { await answer?.value }
}
