import Foundation

/// Takes elements from a thread, which waits until each is taken, to a task.
final class Handover<Element: Sendable>: @unchecked Sendable {
  private let changed = NSCondition()
  private var element: Element?
  private var end: Result<Void, CowMLXError>?
  private var isClosed = false
  private var takers: [UnsafeContinuation<Void, Never>] = []

  /// Gives an element, once the one before it is taken; false: it is no longer wanted.
  func give(_ element: Element) -> Bool {
    changed.lock()
    if !isClosed { self.element = element }
    let takers = woken()
    changed.unlock()
    for taker in takers { taker.resume() }
    changed.lock()
    defer { changed.unlock() }
    while self.element != nil, !isClosed { changed.wait() }
    return !isClosed
  }

  /// Gives the end, after the last element; nil is success.
  func end(_ error: CowMLXError?) {
    changed.lock()
    end = error.map { .failure($0) } ?? .success(())
    let takers = woken()
    changed.unlock()
    for taker in takers { taker.resume() }
  }

  /// Elements are no longer wanted; the end is.
  func close() {
    changed.lock()
    (isClosed, element) = (true, nil)
    changed.signal()
    changed.unlock()
  }

  /// The next element; nil at the end.
  func next() async throws(CowMLXError) -> Element? {
    while true {
      if let element = take() { return element }
      if let end = ending() {
        try end.get()
        return nil
      }
      await wait()
    }
  }

  /// Waits for the end; there are no more elements.
  func ended() async {
    while ending() == nil { await wait() }
  }

  private func wait() async {
    await withUnsafeContinuation { continuation in
      if !awaits(continuation) { continuation.resume() }
    }
  }

  /// Keeps a task until there is something for it; false if there is.
  private func awaits(_ taker: UnsafeContinuation<Void, Never>) -> Bool {
    changed.lock()
    defer { changed.unlock() }
    guard element == nil, end == nil else { return false }
    takers.append(taker)
    return true
  }

  private func take() -> Element? {
    changed.lock()
    defer { changed.unlock() }
    defer { element = nil }
    if element != nil { changed.signal() }
    return element
  }

  private func ending() -> Result<Void, CowMLXError>? {
    changed.lock()
    defer { changed.unlock() }
    return end
  }

  /// The waiting tasks, which are no longer kept.
  private func woken() -> [UnsafeContinuation<Void, Never>] {
    defer { takers = [] }
    return takers
  }
}
