// swift-tools-version:6.0
import PackageDescription

let library = Target.Dependency.product(name: "CowMLX", package: "swift")
var targets: [Target] = ["hello", "stream", "chat", "recipe", "search", "train"].map {
  .executableTarget(name: $0, dependencies: [library])
}
targets += [
  .target(name: "ChatWindow", dependencies: [library]),
  .testTarget(
    name: "ChatWindowTests", dependencies: ["ChatWindow"],
    // Observation of Swift 6.0 on Linux lacks a symbol, which programs need never call.
    linkerSettings: [
      .unsafeFlags(["-Xlinker", "--allow-shlib-undefined"], .when(platforms: [.linux]))
    ]),
]
#if os(macOS)
  targets.append(.executableTarget(name: "ChatApp", dependencies: ["ChatWindow"]))
#endif

let package = Package(
  name: "examples",
  platforms: [.macOS(.v14)],
  dependencies: [.package(path: "../../../bindings/swift")],
  targets: targets,
  swiftLanguageModes: [.v6]
)
