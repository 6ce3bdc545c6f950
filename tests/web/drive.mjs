// Does on the page what standard input says, a list of steps, and prints what is seen then:
//   node drive.mjs PLAYWRIGHT CHROMIUM < steps.json
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [playwright, executablePath] = process.argv.slice(2);
const { chromium } = createRequire(import.meta.url)(playwright);
const { address, width = 1280, colorScheme = "light", steps } = JSON.parse(readFileSync(0, "utf8"));

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const context = await browser.newContext({ viewport: { width, height: 800 }, colorScheme });
const page = await context.newPage();
const seen = { requests: [], errors: [], states: [] };
await context.route("https://**", (route) => route.abort()); // nothing leaves this machine
context.on("request", (request) => seen.requests.push(request.url()));
page.on("pageerror", (error) => seen.errors.push(String(error)));
page.on("console", (message) => message.type() === "error" && seen.errors.push(message.text()));

const ready = () =>
  page.waitForFunction(() => document.getElementById("status").textContent === "Ready", null, {
    timeout: 120_000,
  });
const actions = {
  file: (slot, path) => page.locator(`#slot-${slot} input[type=file]`).setInputFiles(path),
  url: async (slot, url) => {
    await page.locator(`#slot-${slot} input[type=url]`).fill(url);
    await page.keyboard.press("Enter");
  },
  all: (slot) => page.locator(`#found-${slot} button`).click(),
  shot: (path) => page.screenshot({ path, fullPage: true }),
};

const began = Date.now();
await page.goto(address);
await ready();
seen.ready = Date.now() - began;
for (const [action, ...given] of steps) {
  const start = Date.now();
  await actions[action](...given);
  await ready();
  const texts = Object.fromEntries(
    await Promise.all(
      ["found-a", "found-b", "comparison"].map(async (id) => [id, await page.locator(`#${id}`).innerText()]),
    ),
  );
  const rows = await page.locator("#found-a .tensors tr").count();
  const overflow = await page.evaluate(() => document.body.scrollWidth - window.innerWidth);
  seen.states.push({ ...texts, rows, overflow, took: Date.now() - start });
}
console.log(JSON.stringify(seen));
await browser.close();
