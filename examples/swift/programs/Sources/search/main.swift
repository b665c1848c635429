// The lines that are most like a query, by embeddings: search MODEL QUERY < lines
import CowMLX
import Foundation

/// How much each text is like the query: from -1 to 1.
func scores(of texts: [String], for query: String, by model: Model) async throws -> [Float] {
  // Embeddings have the length 1: their products are the cosines of their angles.
  let rows = try await model.embed([query] + texts)
  let shape = [rows.count, rows.width]
  let vectors = try NDArray(rows.values, shape: shape, on: model.runtime)
  let first = try await vectors.slice(start: [0], stop: [1], axes: [0])
  let products = try await vectors.matmul(first.transpose()).flatten()
  return [Float](try await products.values(of: Float.self).dropFirst())
}

guard CommandLine.arguments.count == 3 else {
  FileHandle.standardError.write(Data("usage: search MODEL QUERY\n".utf8))
  exit(2)
}
do {
  let model = try await Model.load(CommandLine.arguments[1])
  var lines: [String] = []
  while let line = readLine() { if !line.isEmpty { lines.append(line) } }
  let found = try await scores(of: lines, for: CommandLine.arguments[2], by: model)
  for (line, score) in zip(lines, found).sorted(by: { $0.1 > $1.1 }).prefix(3) {
    print(String(format: "%.3f", score), line)
  }
} catch {
  FileHandle.standardError.write(Data("\(error)\n".utf8))
  exit(1)
}
