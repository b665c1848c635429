// A chat window with Electron. The model runs in the main process, whose event loop stays free:
// answers go to the window as they come.
//   npm ci && npm install --no-save electron && npx electron electron/main.mjs LIBRARY MODEL
import { app, BrowserWindow, ipcMain } from "electron";
import { fileURLToPath } from "node:url";
import { Model, Runtime, useLibrary } from "cowmlx";

const [library, path] = process.argv.slice(-2);
const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const running = new Map(); // by the window and its number of the question: the canceler

// A window keeps its context. Where none could be made, its next question asks for one again.
function contextOf(contexts, model, id) {
  if (!contexts.has(id)) {
    contexts.set(id, model.contextAsync());
    contexts.get(id).catch(() => contexts.delete(id));
  }
  return contexts.get(id);
}

// A window asks with the whole conversation, and hears of each part of the answer.
function answer(contexts, model) {
  return async ({ sender }, { id, messages }) => {
    const key = `${sender.id} ${id}`, canceler = new AbortController();
    running.set(key, canceler);
    try {
      const context = await contextOf(contexts, model, sender.id);
      for await (const event of context.chat(messages, { signal: canceler.signal })) {
        if (!sender.isDestroyed()) sender.send("part", { id, ...event });
      }
      return { finish: "stop" };
    } catch (error) {
      if (canceler.signal.aborted) return { finish: "canceled" };
      return { finish: "error", message: error.message };
    } finally {
      running.delete(key);
    }
  };
}

function open(contexts) {
  const window = new BrowserWindow({
    width: 720, height: 640, title: "libcowmlx",
    webPreferences: { preload: here("preload.cjs"), sandbox: true, contextIsolation: true },
  });
  const { id } = window.webContents;
  window.on("closed", async () => {
    for (const [key, canceler] of running) if (key.startsWith(`${id} `)) canceler.abort();
    const context = contexts.get(id);
    contexts.delete(id);
    await (await context?.catch(() => undefined))?.closeAsync();
  });
  window.loadFile(here("index.html"));
}

await app.whenReady();
useLibrary(library);
const runtime = new Runtime();
const model = await Model.load(path);
const contexts = new Map(); // a conversation of each window, by its number
ipcMain.handle("ask", answer(contexts, model));
ipcMain.on("cancel", ({ sender }, id) => running.get(`${sender.id} ${id}`)?.abort());
app.on("activate", () => { if (!BrowserWindow.getAllWindows().length) open(contexts); });
app.on("window-all-closed", () => app.quit());
app.on("will-quit", () => runtime.close());
open(contexts);
