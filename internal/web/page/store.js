// What the page knows, kept as it is now by the event stream. Changes are told to views
// once per frame, however many events came: views redraw, they do not queue.
import { all, call, Stream } from './net.js';
import { Fleet, totals } from './fleet.js';

const keptEvents = 2000;
const keptSamples = 2000;

export class Store {
  constructor() {
    this.fleet = new Fleet();
    this.self = null;
    this.pools = [];
    this.tenants = [];
    this.events = [];      // newest last
    this.samples = restore(); // [{at, held, would}] for savings
    this.link = 'connecting';
    this.told = 0;         // events since the page was opened
    this.listeners = new Set();
    this.dirty = new Set();
    this.timers = [];
  }

  // open signs in with the token of the session and begins to follow.
  async open() {
    this.self = await call('/v1/whoami');
    this.stream = new Stream({
      onEvent: (ev) => this.take(ev),
      onPlace: () => { if (!this.asked) { this.asked = true; this.refresh(); } },
      onState: (s) => { if (s !== this.link) { this.link = s; this.changed('link'); } },
    });
    this.stream.start();
    this.every(1000, () => this.settle());
    this.every(10000, () => this.sample());
    // A hidden tab gives its connection back: a browser has six for a server.
    this.onVisible = () => {
      clearTimeout(this.hiding);
      if (document.hidden) this.hiding = setTimeout(() => { this.stream.stop(); this.paused = true; }, 60000);
      else if (this.paused) { this.paused = false; this.stream.start(); this.refresh(); }
    };
    document.addEventListener('visibilitychange', this.onVisible);
  }

  close() {
    this.stream?.stop();
    this.timers.forEach(clearInterval);
    clearTimeout(this.hiding);
    document.removeEventListener('visibilitychange', this.onVisible);
    this.listeners.clear();
  }

  every(ms, f) { this.timers.push(setInterval(() => { if (!document.hidden) f(); }, ms)); }

  // on calls f with the set of topics that changed, at most once per frame. Topics:
  // fleet, pools, tenants, tasks, events, link, samples.
  on(f) {
    this.listeners.add(f);
    return () => this.listeners.delete(f);
  }

  changed(topic) {
    if (this.dirty.size === 0) requestAnimationFrame(() => this.flush());
    this.dirty.add(topic);
  }

  flush() {
    const topics = this.dirty;
    this.dirty = new Set();
    for (const f of this.listeners) f(topics);
  }

  take(ev) {
    this.told++;
    this.events.push(ev);
    if (this.events.length > 2 * keptEvents) this.events = this.events.slice(-keptEvents);
    this.changed('events');
    if (this.loaded) this.applyOne(ev);
  }

  applyOne(ev) {
    const done = this.fleet.apply(ev);
    if (done === 'load') this.stale = true;
    else if (done) this.changed('fleet');
    if (ev.task) { this.tasksStale = true; this.poolsStale = true; }
    if (ev.kind.startsWith('pool.') || ev.kind.startsWith('tenant.')) this.poolsStale = true;
  }

  // refresh loads everything again: at the start, after a gap, after a long absence.
  async refresh() {
    await Promise.all([this.loadMap(), this.loadPools()]);
    this.sample();
  }

  // loadMap asks for every GPU. It is also what brings real use, which is no fact, and
  // what others hold, which a tenant is not told of: so it comes again every few seconds.
  async loadMap() {
    if (this.loading) return;
    this.loading = true;
    this.stale = false;
    const began = performance.now();
    try {
      const m = await call('/v1/map');
      this.fleet.load(m);
      this.loaded = true;
      for (const ev of this.events) if (ev.seq > m.seq) this.applyOne(ev); // what came while it was on its way
      this.changed('fleet');
    } catch { this.stale = true; } finally {
      this.loading = false;
      this.mapAt = performance.now();
      this.mapTook = this.mapAt - began;
    }
  }

  async loadPools() {
    if (this.loadingPools) return;
    this.loadingPools = true;
    this.poolsStale = false;
    try {
      [this.pools, this.tenants] = await Promise.all([all('/v1/pools'), all('/v1/tenants')]);
      this.changed('pools');
      this.changed('tenants');
    } catch { this.poolsStale = true; } finally { this.loadingPools = false; this.poolsAt = performance.now(); }
  }

  // settle asks again for what events said has changed, at most once a second or two.
  settle() {
    if (this.link !== 'live') return;
    const now = performance.now();
    // The map costs what it took: a large one comes more rarely.
    if (this.loaded && (this.stale || now - this.mapAt > Math.max(5000, 40 * this.mapTook))) this.loadMap();
    if (this.poolsStale && now - (this.poolsAt || 0) > 2000 || now - (this.poolsAt || 0) > 15000) this.loadPools();
    if (this.tasksStale) { this.tasksStale = false; this.changed('tasks'); }
  }

  // sample notes what is held now and what static would hold; parked tasks hold nothing
  // here, and at least a GPU each there.
  sample() {
    if (!this.loaded || this.self.tenant) return;
    const t = totals(this.fleet);
    const parked = this.pools.reduce((n, p) => n + p.parked, 0);
    this.samples.push({ at: Date.now(), held: round(t.heldGPUs), would: round(t.staticGPUs + parked), busy: round(t.busyGPUs) });
    if (this.samples.length > keptSamples) this.samples = this.samples.filter((_, i) => i % 2 === 1 || i > keptSamples - 200);
    try { sessionStorage.setItem('gpupool.samples', JSON.stringify(this.samples)); } catch { /* lost at the next reload */ }
    this.changed('samples');
  }
}

function round(n) { return Math.round(n * 100) / 100; }

function restore() {
  try { return JSON.parse(sessionStorage.getItem('gpupool.samples')) || []; } catch { return []; }
}
