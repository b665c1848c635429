import CowMLX

let model = try await Model.load("models/calf")
let chat = Chat(try await model.context())
for try await case .text(let text) in chat.send("What is 3 + 4?") {
  print(text, terminator: "")
}
