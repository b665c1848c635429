// Stream what a model makes of a text, then again and stop half-way:
//   npm ci && node stream.mjs LIBRARY MODEL TEXT
// LIBRARY is what `python -m cowmlx library` prints, or that of `make install`.
import koffi from "koffi";

const [libraryPath, modelPath, text] = process.argv.slice(2);
if (text === undefined) {
  console.error("usage: node stream.mjs LIBRARY MODEL TEXT");
  process.exit(2);
}

const DONE = 1, ADD_SPECIAL = 1, FINISH_CANCELED = 5;
const Piece = koffi.struct("cow_mlx_piece", {
  struct_size: "size_t", token: "int32_t", logprob: "float", finish: "int32_t",
});

const library = koffi.load(libraryPath);
const message = library.func("const char* cow_mlx_error_message()");
const details = library.func(`int32_t cow_mlx_error_details(_Out_ uint8_t* json, size_t capacity,
  _Out_ size_t* length)`);
const statusName = library.func("const char* cow_mlx_status_name(int32_t status)");
const declare = (prototype) => library.func(`int32_t cow_mlx_${prototype}`);
const start = declare("runtime_start(void* params)");
const stop = declare("runtime_stop()");
const load = declare("model_load(const char* path, void* params, _Out_ int32_t* model)");
const create = declare("context_create(int32_t model, void* params, _Out_ int32_t* context)");
const tokenize = declare(`model_tokenize(int32_t model, const char* text, size_t length,
  uint32_t flags, _Out_ int32_t* tokens, size_t capacity, _Out_ size_t* count)`);
const begin = declare(
  "context_begin(int32_t context, const int32_t* tokens, size_t count, void* params)");
const next = declare(`context_next(int32_t context, _Out_ uint8_t* text, size_t capacity,
  _Out_ size_t* length, _Inout_ cow_mlx_piece* piece)`);
const cancel = declare("context_cancel(int32_t context)");
const info = declare(`context_info(int32_t context, _Out_ uint8_t* json, size_t capacity,
  _Out_ size_t* length)`);

// Why a call failed: for people a message, for programs a reason and its details.
class CowMlxError extends Error {
  constructor(status, { message, reason, details }) {
    super(message);
    Object.assign(this, { status: statusName(status), reason, details });
  }
}

function check(status) {
  if (status >= 0) return status;
  const json = Buffer.alloc(4096), length = [0];
  details(json, json.length, length);
  const failure = JSON.parse(json.toString("utf8", 0, Number(length[0])));
  throw new CowMlxError(status, { message: message(), ...failure });
}

// What a context says of its last call that failed.
function problem(context, status) {
  const json = Buffer.alloc(16384), length = [0];
  check(info(context, json, json.length, length));
  const { error } = JSON.parse(json.toString("utf8", 0, Number(length[0])));
  return error ?? { message: statusName(status) };
}

// A call that waits, made on a thread of koffi's, so that the event loop stays free. The error
// message belongs to that thread; the context has it for this one.
async function wait(call, context, ...rest) {
  const held = [context, ...rest]; // koffi uses the memory of arrays itself, until the call ends
  const status = await new Promise((resolve, reject) =>
    call.async(...held, (error, status) => (error ? reject(error) : resolve(status))));
  held.length = 0;
  if (status < 0) throw new CowMlxError(status, problem(context, status));
  return status;
}

// The pieces of a generation. Returns why it ended.
async function* generate(context, tokens) {
  await wait(begin, context, tokens, tokens.length, null);
  const buffer = Buffer.alloc(1024), length = [0];
  const piece = { struct_size: koffi.sizeof(Piece), token: -1, logprob: 0, finish: 0 };
  while ((await wait(next, context, buffer, buffer.length, length, piece)) !== DONE) {
    yield buffer.toString("utf8", 0, Number(length[0]));
  }
  return piece.finish;
}

const model = [0], context = [0], tokens = new Int32Array(2048), count = [0];
check(start(null));
check(load(modelPath, null, model));
check(create(model[0], null, context));
check(tokenize(model[0], text, Buffer.byteLength(text), ADD_SPECIAL, tokens, tokens.length, count));
const prompt = tokens.subarray(0, Number(count[0]));

for await (const part of generate(context[0], prompt)) process.stdout.write(part);
console.log("\n[ended]");

const pieces = generate(context[0], prompt);
let received = 0, step;
while (!(step = await pieces.next()).done) {
  process.stdout.write(step.value);
  received += step.value.length;
  if (received >= 20) check(cancel(context[0]));
}
console.log(step.value === FINISH_CANCELED ? "\n[canceled]" : "\n[ended]");
check(stop());
