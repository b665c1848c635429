// Electron's own modules for a program of it that runs under Node: two processes in one, whose
// messages are copied as those between processes are. A window has the few parts of a page that the
// example uses. QUESTIONS, a JSON list, are typed one after the other; of one that ends in "!" the
// answer is stopped at its first part. What the window shows is printed.
const { EventEmitter } = require("node:events");
const fs = require("node:fs");
const { createRequire } = require("node:module");
const path = require("node:path");
const vm = require("node:vm");

const app = new EventEmitter();
app.whenReady = () => Promise.resolve();
app.quit = () => { app.emit("will-quit"); };

const handlers = new Map();
const ipcMain = new EventEmitter();
ipcMain.handle = (channel, handler) => handlers.set(channel, handler);

class Element extends EventTarget {
  textContent = "";
  value = "";
  children = [];
  append(child) { this.children.push(child); }
}

const windows = new Set();

class BrowserWindow extends EventEmitter {
  static getAllWindows() { return [...windows]; }

  constructor({ webPreferences }) {
    super();
    windows.add(this);
    this.preload = webPreferences.preload;
    this.page = new EventEmitter(); // what the main process sends
    this.webContents = {
      id: windows.size,
      isDestroyed: () => !windows.has(this),
      send: (channel, value) => setImmediate(
        (copy) => this.page.emit(channel, {}, copy), structuredClone(value)),
    };
  }

  loadFile(file) {
    const bridge = {}, elements = {};
    const ipcRenderer = {
      on: (channel, heard) => this.page.on(channel, heard),
      send: (channel, value) => setImmediate(
        (copy) => ipcMain.emit(channel, { sender: this.webContents }, copy), structuredClone(value)),
      invoke: async (channel, value) => {
        const sender = this.webContents, copy = structuredClone(value);
        const reply = structuredClone(await handlers.get(channel)({ sender }, copy));
        return new Promise((resolve) => setImmediate(resolve, reply)); // behind what was sent
      },
    };
    const contextBridge = { exposeInMainWorld: (name, value) => { bridge[name] = value; } };
    const require_ = (name) => (
      name === "electron" ? { contextBridge, ipcRenderer } : createRequire(this.preload)(name));
    vm.runInNewContext(fs.readFileSync(this.preload, "utf8"), { require: require_ });
    const document = {
      getElementById: (id) => (elements[id] ??= new Element()),
      createElement: () => new Element(),
    };
    const script = path.join(path.dirname(file), "renderer.js");
    vm.runInNewContext(fs.readFileSync(script, "utf8"), { document, window: { ...bridge } });
    this.#use(elements).catch((error) => { console.error(error); process.exitCode = 1; });
  }

  async #use({ form, question, conversation, stop }) {
    for (const typed of JSON.parse(process.env.QUESTIONS)) {
      const shown = conversation.children.length;
      question.value = typed.replace(/!$/, "");
      form.dispatchEvent(new Event("submit"));
      const answer = conversation.children[shown + 1];
      while (typed.endsWith("!") && !answer.textContent) await new Promise(setImmediate);
      if (typed.endsWith("!")) stop.dispatchEvent(new Event("click"));
      while (!stop.disabled) await new Promise(setImmediate);
    }
    for (const { className, textContent } of conversation.children) {
      console.log(`${className}: ${textContent}`);
    }
    windows.delete(this);
    this.emit("closed");
    setImmediate(() => app.emit("window-all-closed"));
  }
}

exports.app = app;
exports.ipcMain = ipcMain;
exports.BrowserWindow = BrowserWindow;
