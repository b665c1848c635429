import CCowMLX

extension CowMLXError {
  /// The failure of the call that this thread has just made, with the names of this package.
  static func ofLastCall(_ status: Int32) -> CowMLXError {
    var message = String(cString: api.error_message()!)
    let known = try? json(512) { api.error_details($0, $1, $2) }
    let call = known?["operation"]?.string ?? ""
    var details = known?["details"]?.object ?? [:]
    if let argument = details["argument"]?.string {
      details["argument"] = .string(renamed(argument))
    }
    let operation = Names.calls[call] ?? call
    if message.hasPrefix("\(call): ") { message.removeFirst(call.count + 2) }
    if message.isEmpty { message = String(cString: api.status_name(status)!) }
    let failure = Failure(
      operation: operation, reason: Reason(rawValue: known?["reason"]?.string ?? ""),
      message: operation.isEmpty ? renamed(message) : "\(operation): \(renamed(message))",
      details: details)
    return CowMLXError(status: status, failure)
  }

  /// A failure that this package finds itself.
  static func refused(
    _ status: Int, _ operation: String, _ reason: String, argument: String? = nil, _ message: String
  ) -> CowMLXError {
    let details = argument.map { ["argument": JSONValue.string($0)] } ?? [:]
    let failure = Failure(
      operation: operation, reason: Reason(rawValue: reason), message: "\(operation): \(message)",
      details: details)
    return CowMLXError(status: Int32(status), failure)
  }

  /// The same failure, of another call of this package.
  func named(_ operation: String) -> CowMLXError {
    var failure = failure
    if failure.message.hasPrefix("\(failure.operation): ") {
      failure.message.removeFirst(failure.operation.count + 2)
    }
    failure.message = "\(operation): \(failure.message)"
    failure.operation = operation
    return CowMLXError(status: status, failure)
  }
}

/// Makes calls whose failures are those of another call of this package.
func named<R>(
  _ operation: String, _ call: () throws(CowMLXError) -> R
) throws(CowMLXError) -> R {
  do {
    return try call()
  } catch {
    throw error.named(operation)
  }
}

/// A message with the names of this package for those of C. Words in quotes are the host's and stay as
/// they are.
private func renamed(_ message: String) -> String {
  var (result, word, quote) = ("", "", Character?.none)
  func end() {
    defer { word = "" }
    let call = word.hasPrefix("cow_mlx_") ? String(word.dropFirst(8)) : word
    result += Names.fields[word] ?? Names.parameters[word] ?? Names.calls[call] ?? word
  }
  for character in message {
    if quote == nil, character.isLetter || character.isNumber || character == "_" {
      word.append(character)
      continue
    }
    end()
    if character == quote {
      quote = nil
    } else if quote == nil, character == "\"" {
      quote = character
    }
    result.append(character)
  }
  end()
  return result.replacing("is NULL", with: "is not given")
}
