// The window: a form, and the conversation above it.
const form = document.getElementById("form");
const question = document.getElementById("question");
const conversation = document.getElementById("conversation");
const stop = document.getElementById("stop");
const messages = [];
let asked;

function show(role, text = "") {
  const paragraph = document.createElement("p");
  paragraph.className = role;
  paragraph.textContent = text;
  conversation.append(paragraph);
  return paragraph;
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const content = question.value.trim();
  if (!content || asked) return;
  question.value = "";
  messages.push({ role: "user", content });
  show("user", content);
  const answer = show("assistant");
  asked = window.cowmlx.ask(messages, ({ kind, text }) => {
    if (kind === "text") answer.textContent += text;
  });
  stop.disabled = false;
  const { finish, message } = await asked.ended;
  asked = undefined;
  stop.disabled = true;
  if (finish === "error") messages.pop(); // the question has no answer
  else messages.push({ role: "assistant", content: answer.textContent });
  if (finish !== "stop") show("note", message ?? finish);
});

stop.addEventListener("click", () => { if (asked) window.cowmlx.cancel(asked.id); });
