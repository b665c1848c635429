// Teach a model an answer, as a LoRA adapter: train MODEL FOLDER
import CowMLX
import Foundation

guard CommandLine.arguments.count == 3 else {
  FileHandle.standardError.write(Data("usage: train MODEL FOLDER\n".utf8))
  exit(2)
}
do {
  let model = try await Model.load(CommandLine.arguments[1])
  let question = "What is your name?"
  let lines = """
    {"messages": [{"role": "user", "content": "\(question)"}, \
    {"role": "assistant", "content": "My name is Berta."}]}
    """
  let training = try await Training(
    of: model,
    TrainingParams(
      optimizer: #"{"name": "adam", "learning_rate": 0.0005}"#,
      fineTune: #"{"rank": 16, "scale": 2, "num_layers": -1}"#))

  let fit = FitParams(steps: 60, batchSize: 1, eventEvery: 10, lines: lines)
  for try await event in training.fit(fit) where event.kind == .step {
    print("step \(event.step): loss \(String(format: "%.3f", event.loss))")
  }
  try await training.export(to: CommandLine.arguments[2])

  let context = try await model.context()
  try await context.setAdapter(training.adapter())
  print(try await Chat(context).respond(to: question))
} catch {
  FileHandle.standardError.write(Data("\(error)\n".utf8))
  exit(1)
}
