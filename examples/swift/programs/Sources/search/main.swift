// The lines that are most like a query, by embeddings: search MODEL QUERY < lines
import CowMLX
import Foundation

guard CommandLine.arguments.count == 3 else {
  FileHandle.standardError.write(Data("usage: search MODEL QUERY\n".utf8))
  exit(2)
}
do {
  let runtime = try await Runtime.start()
  let model = try await Model.load(CommandLine.arguments[1], runtime: runtime)
  var lines: [String] = []
  while let line = readLine() { if !line.isEmpty { lines.append(line) } }

  // Embeddings have the length 1: their products are the cosines of their angles.
  let rows = try await model.embed([CommandLine.arguments[2]] + lines)
  let vectors = try NDArray(rows.values, shape: [rows.count, rows.width], on: runtime)
  let query = try await vectors.slice(start: [0], stop: [1], axes: [0])
  let scores = try await vectors.matmul(query.transpose()).flatten().values(of: Float.self)

  for (line, score) in zip(lines, scores.dropFirst()).sorted(by: { $0.1 > $1.1 }).prefix(3) {
    print(String(format: "%.3f", score), line)
  }
} catch {
  FileHandle.standardError.write(Data("\(error)\n".utf8))
  exit(1)
}
