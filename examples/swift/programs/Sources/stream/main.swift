// Stream what a model makes of a text, then again and stop half-way: stream MODEL TEXT
import CowMLX
import Foundation

func write(_ text: String) { FileHandle.standardOutput.write(Data(text.utf8)) }

guard CommandLine.arguments.count == 3 else {
  FileHandle.standardError.write(Data("usage: stream MODEL TEXT\n".utf8))
  exit(2)
}
do {
  let model = try await Model.load(CommandLine.arguments[1])
  let context = try await model.context()
  let prompt = try await model.tokenize(CommandLine.arguments[2], special: .add)

  for try await piece in context.generate(prompt) { write(piece.text) }
  write("\n[ended]\n")

  var received = 0
  for try await piece in context.generate(prompt) {
    write(piece.text)
    received += piece.text.utf8.count
    if received >= 20 { break }  // which cancels the generation
  }
  write("\n[canceled]\n")
} catch {
  FileHandle.standardError.write(Data("\(error)\n".utf8))
  exit(1)
}
