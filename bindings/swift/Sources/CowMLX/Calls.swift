import CCowMLX

/// The library's functions: `api.context_cancel(handle)`. Valid once `Library.load` has succeeded.
var api: cow_mlx_calls {
  cow_mlx_loaded().pointee
}

/// Turns the status of the call that this thread has just made into an error.
func check(_ status: cow_mlx_status) throws(CowMLXError) {
  if status < 0 { throw CowMLXError.ofLastCall(status) }
}

/// Turns the status of a cancel into an error: cancels leave the thread's message alone.
func checkCancel(
  _ status: cow_mlx_status, _ operation: String, _ noun: String
) throws(CowMLXError) {
  if status < 0 {
    throw .refused(Int(COW_MLX_EHANDLE), operation, "unknown_handle", "the \(noun) is closed")
  }
}

/// Makes a call that waits, while this task is suspended.
func blocking<R: Sendable>(
  on workers: Workers = .calls, _ call: @escaping @Sendable () throws(CowMLXError) -> R
) async throws(CowMLXError) -> R {
  // The lock orders what the worker wrote before what the task reads. Swift's runtime does so, too, but
  // on Linux it does not tell ThreadSanitizer so where the call returns before the task waits.
  let result = Locked<Result<R, CowMLXError>?>(nil)
  await withUnsafeContinuation { continuation in
    workers.run {
      let returned = Result(catching: call)
      result.withLock { $0 = returned }
      continuation.resume()
    }
  }
  return try result.withLock { $0! }.get()
}

/// A call that fills a buffer: its start, its capacity in elements, and where the count goes.
typealias Fill<Element> = (
  UnsafeMutablePointer<Element>, Int, UnsafeMutablePointer<Int>
) -> cow_mlx_status

/// The elements that a call gives, after a second call if there are more than were guessed.
func vector<Element>(
  _ guess: Int, of type: Element.Type = Element.self, _ fill: Fill<Element>
) throws(CowMLXError) -> [Element] {
  var capacity = max(guess, 1)
  while true {
    var (status, needed) = (cow_mlx_status(0), 0)
    let elements = [Element](unsafeUninitializedCapacity: capacity) { buffer, count in
      status = fill(buffer.baseAddress!, capacity, &needed)
      count = status == COW_MLX_OK || status == COW_MLX_DONE ? needed : 0
    }
    if status != COW_MLX_EBUFFER || needed <= capacity {
      try check(status)
      return elements
    }
    capacity = needed
  }
}

/// The text that a call gives.
func text(_ guess: Int = 2048, _ fill: Fill<CChar>) throws(CowMLXError) -> String {
  let bytes = try vector(guess, fill)
  return bytes.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
}

/// The JSON that a call gives.
func json(_ guess: Int = 4096, _ fill: Fill<CChar>) throws(CowMLXError) -> JSONValue {
  try JSONValue(parsing: text(guess, fill))
}
