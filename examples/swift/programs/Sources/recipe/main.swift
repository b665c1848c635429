// A value of a type as a model's answer: recipe MODEL DISH
import CowMLX
import Foundation

struct Recipe: Codable {
  struct Ingredient: Codable {
    let name: String
    let grams: Int
  }

  let title: String
  let ingredients: [Ingredient]
  let isVegetarian: Bool
}

guard CommandLine.arguments.count == 3 else {
  FileHandle.standardError.write(Data("usage: recipe MODEL DISH\n".utf8))
  exit(2)
}
do {
  let model = try await Model.load(CommandLine.arguments[1])
  let context = try await model.context()
  let recipe = try await context.respond(
    to: [.user("A short recipe for \(CommandLine.arguments[2]).")], as: Recipe.self,
    params: .init(maxTokens: 1000))
  print(recipe.title, recipe.isVegetarian ? "(vegetarian)" : "")
  for each in recipe.ingredients { print("- \(each.grams) g of \(each.name)") }
} catch {
  FileHandle.standardError.write(Data("\(error)\n".utf8))
  exit(1)
}
