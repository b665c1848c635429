// All that the window may ask of the main process.
const { contextBridge, ipcRenderer } = require("electron");

let last = 0;
const parts = new Map(); // by question: the listener of its answer

ipcRenderer.on("part", (_, { id, ...part }) => parts.get(id)?.(part));

contextBridge.exposeInMainWorld("cowmlx", {
  // Returns the number of the question, and a promise of how its answer ended.
  ask(messages, onPart) {
    const id = ++last;
    parts.set(id, onPart);
    const ended = ipcRenderer.invoke("ask", { id, messages }).finally(() => parts.delete(id));
    return { id, ended };
  },
  cancel: (id) => ipcRenderer.send("cancel", id),
});
