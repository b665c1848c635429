import CowMLX
import Foundation
import Testing

struct Animal: Codable, Equatable {
  let name, colour, sound: String
  let legs: Int
  let home, food: String
}

enum Size: String, Codable, CaseIterable { case small, large }

struct Zoo: Codable, SchemaGuided {
  struct Keeper: Codable {
    let name: String
    let since: Date?
  }
  let title: String
  let size: Size
  let visitors: Int?
  let area: Double
  let isOpen: Bool
  let keepers: [Keeper]
  let prices: [String: Double]

  static let guides = [
    "title": SchemaGuide("the name of the zoo", pattern: "[A-Z].*"),
    "area": SchemaGuide(range: 1...9), "keepers": SchemaGuide(count: 1...3),
  ]
}

struct Node: Codable {
  let value: Int
  let children: [Node]
}

struct Misguided: Codable, SchemaGuided {
  let name: String
  static let guides = ["nmae": SchemaGuide("a typing error")]
}

enum Opaque: String, Codable { case a, b }

@Suite struct StructuredTests {
  @Test func aSchemaHasThePropertiesOfAType() throws {
    let schema = try JSONSchema(of: Zoo.self).text
    #expect(
      schema == #"""
        {"type":"object","properties":{"title":{"type":"string","pattern":"[A-Z].*","description":"the name of the zoo"},"size":{"enum":["small","large"]},"visitors":{"type":"integer"},"area":{"type":"number","minimum":1.0,"maximum":9.0},"isOpen":{"type":"boolean"},"keepers":{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"},"since":{"type":"string","format":"date-time"}},"required":["name"],"additionalProperties":false},"minItems":1,"maxItems":3},"prices":{"type":"object","additionalProperties":{"type":"number"}}},"required":["title","size","area","isOpen","keepers","prices"],"additionalProperties":false}
        """#)
  }

  @Test func aTypeMayContainItself() throws {
    let schema = try JSONSchema(of: Node.self).text
    #expect(
      schema == #"""
        {"type":"object","properties":{"value":{"type":"integer"},"children":{"type":"array","items":{"$ref":"#/$defs/Node"}}},"required":["value","children"],"additionalProperties":false,"$defs":{"Node":{"type":"object","properties":{"value":{"type":"integer"},"children":{"type":"array","items":{"$ref":"#/$defs/Node"}}},"required":["value","children"],"additionalProperties":false}}}
        """#)
  }

  @Test func whatHasNoSchemaIsRefused() throws {
    #expect(throws: (any Error).self) { try JSONSchema(of: Opaque.self) }
    #expect(throws: CowMLXError.self) { try JSONSchema(of: Misguided.self) }
  }

  @Test func anAnswerIsAValueOfAType() async throws {
    let context = try await context()
    let fox = try await context.respond(to: [.user("Describe a fox as JSON.")], as: Animal.self)
    #expect(fox.name == "fox")
    #expect(fox.legs == 4)
    let chat = Chat(context)
    #expect(try await chat.respond(to: "Describe a fox as JSON.", as: Animal.self) == fox)
  }

  @Test func aGenerationIsAValueOfAType() async throws {
    let params = GenerationParams(maxTokens: 200)
    let node = try await context().generate(
      as: [Size].self, from: prompt("Say something."), params: params)
    #expect(node.count >= 0)
  }

  @Test func anAnswerThatIsCutShortIsRefused() async throws {
    let context = try await context()
    let error = await failure {
      _ = try await context.generate(as: Animal.self, from: story(), params: .init(maxTokens: 3))
    }
    #expect(error?.details["argument"] == "maxTokens")
  }

  @Test func valuesGoThroughJSON() throws {
    let value: JSONValue = ["a": [1, 2.5, nil, true, "x"]]
    #expect(value.description == #"{"a":[1,2.5,null,true,"x"]}"#)
    #expect(try JSONValue(parsing: value.description) == value)
    #expect(value["a"]?[1]?.double == 2.5)
    #expect(try JSONValue(encoding: Node(value: 1, children: [])) == ["value": 1, "children": []])
    #expect(throws: CowMLXError.self) { try JSONValue(parsing: "[") }
  }
}
