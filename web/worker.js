// Python in a worker. Reads are synchronous, as the package's are: FileReaderSync and XMLHttpRequest
// may be so here.
import { loadPyodide } from "./pyodide.mjs";

const FIRST = 128 << 10; // bytes of an address that are asked for at first
const HEADERS = ["Content-Range", "Content-Encoding", "ETag", "Last-Modified", "Retry-After"];
const ELSE = "download the file and choose it here";
const UNREACHABLE =
  "cannot be read from this page: there is no such server, or it does not let pages of other sites" +
  ` read it (CORS); ${ELSE}`;

async function start() {
  say("Loading Python", 0.1);
  const [python, packed] = await Promise.all([
    loadPyodide({ indexURL: new URL(".", import.meta.url).href }),
    fetch(new URL("anamnesis.zip", import.meta.url)).then((answer) => answer.arrayBuffer()),
  ]);
  say("Loading anamnesis", 0.6);
  python.unpackArchive(packed, "zip", { extractDir: "/package" });
  python.runPython("import sys; sys.path.insert(0, '/package')");
  const page = python.pyimport("page");
  say("Ready", 1);
  return page;
}

function say(text, share) {
  postMessage({ text, share });
}

// What the hub calls hf://, and the page that it shows of a file, stand for the file.
function addressOf(url) {
  const hub = /^hf:\/\/([^/]+\/[^/@]+)(?:@([^/]+))?\/(.+)$/.exec(url);
  if (hub) return `https://huggingface.co/${hub[1]}/resolve/${hub[2] ?? "main"}/${hub[3]}`;
  return url.replace(/^(https:\/\/huggingface\.co\/[^/]+\/[^/]+)\/blob\//, "$1/resolve/");
}

function readerOf(file, count) {
  const reader = new FileReaderSync();
  return (start, stop) => {
    count.reads += 1;
    count.bytes += stop - start;
    return new Uint8Array(reader.readAsArrayBuffer(file.slice(start, stop)));
  };
}

function answerOf(status, get, body, count) {
  const headers = new Map(HEADERS.map((name) => [name, get(name)]).filter((pair) => pair[1]));
  count.reads += 1;
  count.bytes += body.length;
  return { status, headers, body, length_remaining: body.length };
}

// The first range is asked for in a way that can be stopped, should the server send all of the file.
async function firstOf(url, count) {
  const stop = new AbortController();
  const answer = await fetch(url, {
    headers: { Range: `bytes=0-${FIRST - 1}` },
    signal: stop.signal,
  });
  const get = (name) => answer.headers.get(name);
  if (answer.status === 206 && !get("Content-Range")) {
    throw new Error(`the server does not show pages of other sites how long the file is; ${ELSE}`);
  }
  const is_short = answer.status === 206 || Number(get("Content-Length") ?? FIRST + 1) <= FIRST;
  if (is_short) {
    return answerOf(answer.status, get, new Uint8Array(await answer.arrayBuffer()), count);
  }
  stop.abort();
  return { ...answerOf(answer.status, get, new Uint8Array(), count), length_remaining: undefined }; // None in Python, where null is not
}

function askerOf(url, first, count) {
  return (start, stop) => {
    if (start === 0 && first) {
      const answer = first;
      first = null;
      return answer;
    }
    const request = new XMLHttpRequest();
    request.open("GET", url, false);
    request.responseType = "arraybuffer";
    request.setRequestHeader("Range", `bytes=${start}-${stop - 1}`);
    request.send();
    const get = (name) => request.getResponseHeader(name);
    return answerOf(request.status, get, new Uint8Array(request.response), count);
  };
}

async function shown(page, { slot, file, address }) {
  const count = { bytes: 0, reads: 0 };
  if (file) {
    const found = page.read_file(slot, file.name, file.size, readerOf(file, count));
    return { ...JSON.parse(found), ...count };
  }
  const url = addressOf(address);
  let first;
  try {
    first = await firstOf(url, count);
  } catch (error) {
    const why = error instanceof TypeError ? UNREACHABLE : error.message;
    return { ...JSON.parse(page.problem(slot, url, why)), ...count };
  }
  const found = page.read_address(slot, url, askerOf(url, first, count));
  return { ...JSON.parse(found), ...count };
}

function fail(error) {
  const line = error.message.trim().split("\n").at(-1); // the rest is a traceback
  say(`Python does not run here: ${line}; load this page again`, 1);
}

async function answer(data) {
  const page = await ready;
  postMessage({ slot: data.slot, found: await shown(page, data) });
  postMessage({ comparison: page.compare() });
}

const ready = start();
let last = ready.catch(fail); // one question after the other

onmessage = ({ data }) => {
  last = last.then(() => answer(data)).catch(fail);
};
