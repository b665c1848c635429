// Stream what a model makes of a text, then again and stop half-way: stream MODEL TEXT
import CCowMLX
import Foundation

struct Failure: Error {
  let message = String(cString: cow_mlx_error_message())
}

func check(_ status: cow_mlx_status) throws {
  if status < 0 { throw Failure() }
}

/// The text of each piece goes to `receive`. Returns why the generation ended.
func generate(_ context: cow_mlx_context, _ prompt: [Int32], receive: (Data) -> Void) throws -> Int32 {
  try check(cow_mlx_context_begin(context, prompt, prompt.count, nil))
  var piece = cow_mlx_piece()
  piece.struct_size = MemoryLayout<cow_mlx_piece>.size
  var text = [CChar](repeating: 0, count: 1024)
  var length = 0
  while true {
    let status = cow_mlx_context_next(context, &text, text.count, &length, &piece)
    try check(status)
    if status == cow_mlx_status(COW_MLX_DONE) { return piece.finish }
    receive(text.withUnsafeBytes { Data($0.prefix(length)) })
  }
}

func run(_ folder: String, _ text: String) throws {
  try check(cow_mlx_runtime_start(nil))
  defer { cow_mlx_runtime_stop() }
  var model: cow_mlx_model = 0
  var context: cow_mlx_context = 0
  try check(cow_mlx_model_load(folder, nil, &model))
  try check(cow_mlx_context_create(model, nil, &context))

  var tokens = [Int32](repeating: 0, count: 2048)
  var count = 0
  try check(
    cow_mlx_model_tokenize(
      model, text, text.utf8.count, UInt32(COW_MLX_ADD_SPECIAL), &tokens, tokens.count, &count))
  let prompt = Array(tokens.prefix(count))
  let output = FileHandle.standardOutput

  _ = try generate(context, prompt) { output.write($0) }
  print("\n[ended]")

  var received = 0
  let finish = try generate(context, prompt) { text in
    output.write(text)
    received += text.count
    if received >= 20 { cow_mlx_context_cancel(context) }
  }
  print(finish == Int32(COW_MLX_FINISH_CANCELED) ? "\n[canceled]" : "\n[ended]")
}

let arguments = CommandLine.arguments
guard arguments.count == 3 else {
  FileHandle.standardError.write(Data("usage: stream MODEL TEXT\n".utf8))
  exit(2)
}
do {
  setvbuf(stdout, nil, _IONBF, 0)  // print() and FileHandle take turns
  try run(arguments[1], arguments[2])
} catch let failure as Failure {
  FileHandle.standardError.write(Data("\(failure.message)\n".utf8))
  exit(1)
}
