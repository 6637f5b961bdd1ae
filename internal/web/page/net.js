// Calls of the API, and its event stream. EventSource cannot send a token, so the stream
// is read with fetch.
import { current } from './session.js';

// Refused is an answer other than good, in the server's words.
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || `the server answered ${status}`);
    this.status = status;
    this.code = problem.code || '';
    this.retryAfter = problem.retry_after_s || 0;
  }
}

async function open(path, { method = 'GET', body, headers = {}, signal, token } = {}) {
  const all = { Authorization: 'Bearer ' + (token || current()), ...headers };
  if (body !== undefined) all['Content-Type'] = 'application/json';
  let r;
  try {
    r = await fetch(path, { method, headers: all, body: body === undefined ? undefined : JSON.stringify(body), signal, cache: 'no-store', credentials: 'omit', redirect: 'error' });
  } catch (e) {
    if (e.name === 'AbortError') throw e;
    throw new Refused(0, { code: 'unreachable', detail: 'The server cannot be reached. Is gpupool serve running?' });
  }
  if (r.ok) return r;
  let problem = {};
  try { problem = await r.json(); } catch { /* not in our shape: the status says it all */ }
  if (r.status === 401) dispatchEvent(new CustomEvent('gpupool:signedout', { detail: problem.detail }));
  throw new Refused(r.status, problem);
}

export async function call(path, options) {
  const r = await open(path, options);
  return r.status === 204 ? null : r.json();
}

export async function text(path, options) { return (await open(path, options)).text(); }

// all reads every page of a list, up to a bound that keeps the browser alive.
export async function all(path, bound = 20000) {
  const out = [];
  const join = path.includes('?') ? '&' : '?';
  for (let after = ''; ;) {
    const page = await call(`${path}${join}limit=1000${after && '&after=' + encodeURIComponent(after)}`);
    out.push(...page.items);
    if (!page.next || out.length >= bound) return out;
    after = page.next;
  }
}

// key makes a submission that may be repeated. Not randomUUID: that exists only with TLS.
export function idempotencyKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, '0')).join('');
}

// Stream follows /v1/events and goes on where it was after each break.
//   onEvent(ev)   each event, in order
//   onPlace(seq)  where the stream stands; comes first of all, and after each batch
//   onState(s)    'live', or 'away' while there is no connection
export class Stream {
  constructor(handlers) {
    Object.assign(this, handlers);
    this.last = '';
    this.stopped = true;
  }

  start() {
    if (!this.stopped) return;
    this.stopped = false;
    this.run();
  }

  stop() {
    this.stopped = true;
    this.abort?.abort();
  }

  async run() {
    for (let wait = 250; !this.stopped;) {
      const abort = this.abort = new AbortController();
      try {
        const headers = { Accept: 'text/event-stream' };
        if (this.last) headers['Last-Event-ID'] = this.last;
        const r = await open('/v1/events', { headers, signal: abort.signal });
        wait = 250;
        await read(r, (ev) => this.onEvent(ev), (id) => { this.last = id; this.onState('live'); this.onPlace(Number(id)); }, abort);
      } catch (e) {
        if (e.status === 401 || e.status === 403) return;
      }
      if (this.stopped) return;
      this.onState('away');
      await new Promise((done) => setTimeout(done, wait * (0.5 + Math.random())));
      wait = Math.min(wait * 2, 10000);
    }
  }
}

const silence = 45000; // ms; the server says something every 15 s

// read takes a stream of events apart: "id:", "data:", a blank line after each.
async function read(response, onEvent, onId, abort) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '', id = '', data = '';
  for (;;) {
    const watchdog = setTimeout(() => abort.abort(), silence);
    let piece;
    try { piece = await reader.read(); } finally { clearTimeout(watchdog); }
    if (piece.done) return;
    const lines = (rest + piece.value).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith('data: ')) data += line.slice(6);
      else if (line.startsWith('id: ')) id = line.slice(4);
      else if (line === '') {
        if (data) onEvent(JSON.parse(data));
        else onId(id);
        data = '';
      }
    }
  }
}

// history reads the events of one task that are still kept, and no further.
export async function history(task) {
  const abort = new AbortController();
  const out = [];
  try {
    const r = await open(`/v1/events?task=${task}&after=0`, { signal: abort.signal });
    await read(r, (ev) => out.push(ev), () => abort.abort(), abort);
  } catch (e) {
    if (e.name !== 'AbortError') throw e;
  }
  return out;
}
