import * as cowmlx from "cowmlx";
import { Model, NDArray, Program, ProgramBuilder, Runtime, Training } from "cowmlx";

const runtime = new Runtime();
const model = await Model.load("models/calf");
const context = model.context();
const tokens = model.tokenize("Once upon a time", { addSpecial: true });
{
  /* BLOCK */
}
runtime.close();
