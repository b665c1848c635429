// A chat window for macOS: swift run ChatApp MODEL. Not compiled elsewhere: it needs SwiftUI.
import ChatWindow
import SwiftUI

@main
struct ChatApp: App {
  @State private var conversation = Conversation()

  var body: some Scene {
    WindowGroup("Chat") {
      ChatView(conversation: conversation)
        .task { await conversation.load(CommandLine.arguments.dropFirst().first ?? "models/calf") }
    }
  }
}

struct ChatView: View {
  @Bindable var conversation: Conversation

  var body: some View {
    VStack(spacing: 0) {
      ScrollViewReader { scroll in
        List(conversation.messages) { message in
          MessageView(message: message).listRowSeparator(.hidden)
        }
        .onChange(of: conversation.messages.last?.text) {
          if let last = conversation.messages.last { scroll.scrollTo(last.id, anchor: .bottom) }
        }
      }
      if let problem = conversation.problem {
        Label(problem, systemImage: "exclamationmark.triangle").foregroundStyle(.red).padding()
      }
      if conversation.loaded < 1 && conversation.problem == nil {
        ProgressView(value: conversation.loaded) { Text("Loading the model") }.padding()
      }
      HStack {
        TextField("Message", text: $conversation.draft)
          .textFieldStyle(.roundedBorder)
          .onSubmit { conversation.send() }
        if conversation.isAnswering {
          Button("Stop") { conversation.stop() }.keyboardShortcut(.cancelAction)
        } else {
          Button("Send") { conversation.send() }.disabled(!conversation.canSend)
        }
      }
      .padding()
    }
    .frame(minWidth: 420, minHeight: 320)
  }
}

struct MessageView: View {
  let message: Conversation.Message

  var body: some View {
    HStack {
      if message.author == .person { Spacer(minLength: 40) }
      Text(message.text.isEmpty ? "…" : message.text)
        .textSelection(.enabled)
        .padding(8)
        .background(.quaternary, in: RoundedRectangle(cornerRadius: 8))
      if message.author == .model { Spacer(minLength: 40) }
    }
  }
}
