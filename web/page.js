// The page: two slots, what is read of each, and how they differ.
const FIRST_ROWS = 300;
const HEADS = ["Tensor", "Type", "Shape", "Size"];
const NAMES = { a: "A", b: "B" };
const worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
const at = (id) => document.getElementById(id);

function made(tag, text = "", attributes = {}) {
  const element = Object.assign(document.createElement(tag), attributes);
  element.append(text);
  return element;
}

function say(text, share = 1) {
  at("status").textContent = text;
  at("progress").hidden = share === 1;
  at("progress").value = share;
}

function ask(slot, what) {
  at(`found-${slot}`).replaceChildren();
  at("comparison").replaceChildren();
  say(`Reading ${what.file ? what.file.name : what.address}`);
  worker.postMessage({ slot, ...what });
}

function rowsOf(tensors) {
  return tensors.map((tensor) => {
    const row = made("tr");
    row.append(...tensor.map((text, i) => made("td", text, { className: ["name", "", "", "n"][i] })));
    return row;
  });
}

function tableOf(tensors) {
  const section = made("section", made("h2", "Tensors"));
  const table = made("table");
  const head = made("tr");
  head.append(...HEADS.map((text, i) => made("th", text, { className: i === 3 ? "n" : "" })));
  table.append(head, ...rowsOf(tensors.slice(0, FIRST_ROWS)));
  section.append(made("div", table, { className: "wide tensors", tabIndex: 0 }));
  if (tensors.length > FIRST_ROWS) {
    const more = made("button", `Show all ${tensors.length.toLocaleString("en")}`);
    more.onclick = () => {
      table.append(...rowsOf(tensors.slice(FIRST_ROWS)));
      more.remove();
    };
    section.append(more);
  }
  return section;
}

function show(slot, found) {
  const number = (n) => n.toLocaleString("en");
  const reads = `${number(found.reads)} ${found.reads === 1 ? "read" : "reads"}`;
  const part = found.size < 0 ? "" : `Read ${number(found.bytes)} of ${number(found.size)} bytes, in ${reads}.`;
  const body = made("div");
  body.innerHTML = found.html; // of the package, which escapes all that a file says
  const all = [made("h2", `${NAMES[slot]}: ${found.name}`), made("p", part, { className: "soft count" }), body];
  if (found.tensors.length) all.push(tableOf(found.tensors));
  at(`found-${slot}`).replaceChildren(...all);
}

function compare(html) {
  at("comparison").innerHTML = html;
  if (html) at("comparison").prepend(made("h2", "A and B compared"));
  say("Ready");
}

worker.onerror = (event) => say(`Python does not run here: ${event.message ?? "no worker starts"}`);
worker.onmessage = ({ data }) => {
  if (data.text) say(data.text, data.share);
  else if (data.found) show(data.slot, data.found);
  else compare(data.comparison);
};

for (const slot of Object.keys(NAMES)) {
  const form = at(`slot-${slot}`);
  form.file.onchange = () => form.file.files.length && ask(slot, { file: form.file.files[0] });
  form.onsubmit = (event) => {
    event.preventDefault();
    ask(slot, { address: form.url.value });
  };
}

document.ondragover = (event) => event.preventDefault();
document.ondrop = (event) => {
  event.preventDefault();
  const slot = event.target.closest?.("#slot-b") ? "b" : "a";
  const [first, second] = event.dataTransfer.files;
  if (first) ask(second ? "a" : slot, { file: first });
  if (second) ask("b", { file: second });
};
