// A question to a model: npm install cowmlx && node answer.mjs MODEL QUESTION
import { Model, Runtime } from "cowmlx";

const [folder = "models/calf", question = "What is 3 + 4?"] = process.argv.slice(2);
const runtime = new Runtime();
const model = await Model.load(folder);
const prompt = model.chatPrompt([{ role: "user", content: question }]);
for await (const piece of model.context().generate(prompt)) process.stdout.write(piece.text);
console.log();
runtime.close();
