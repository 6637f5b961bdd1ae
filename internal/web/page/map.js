// The map of all GPUs: a canvas as large as the window, on a page as long as the cluster.
import { el, fill } from './dom.js';
import { held, profile, stateOf } from './fleet.js';
import { matcher } from './filters.js';
import { gpuPanel } from './gpupanel.js';
import { gpuTable } from './gputable.js';
import { draw, legend, palette, sample } from './mapdraw.js';
import { hit, layout, place, sizeFor, sizes, tile, visible } from './maplayout.js';
import { setFilters } from './place.js';
import { count, num, useWord } from './words.js';

export function map(root, store, at) { return new MapView(root, store, at.filters); }

class MapView {
  constructor(root, store, filters) {
    this.store = store;
    this.root = root;
    this.filters = filters;
    this.canvas = el('canvas', { 'aria-hidden': 'true' });
    this.sheet = el('div', { class: 'sheet', tabindex: '0', role: 'application', 'aria-label': 'Map of GPUs', 'aria-describedby': 'maphelp', 'data-key': 'map' }, this.canvas);
    this.tip = el('div', { class: 'tip', 'aria-hidden': 'true', hidden: true });
    this.count = el('span', { class: 'dim', role: 'status' });
    this.legend = el('ul', { class: 'legend', 'aria-label': 'Legend' });
    this.box = el('div', { class: 'mapbox' });
    this.panel = gpuPanel(store, () => this.select(null));
    fill(root, el('div', { class: 'tools' }, this.count, this.sizeChoice(), this.tableButton()), this.legend,
      el('p', { class: 'unseen', id: 'maphelp' }, 'Arrow keys move from GPU to GPU, Enter shows one, t shows all of them as a table.'),
      el('div', { class: 'split' }, this.box, this.panel.element));
    this.mount();
    this.off = [];
    this.listen(window, 'scroll', () => this.redraw(), { passive: true });
    this.listen(window, 'resize', () => this.relayout());
    this.listen(window, 'gpupool:theme', () => this.recolour());
    this.listen(matchMedia('(prefers-color-scheme: dark)'), 'change', () => this.recolour());
    this.listen(this.sheet, 'pointermove', (e) => this.hover(e));
    this.listen(this.sheet, 'pointerleave', () => { this.tip.hidden = true; });
    this.listen(this.sheet, 'click', (e) => this.select(this.under(e)));
    this.listen(this.sheet, 'keydown', (e) => this.key(e));
    this.listen(this.sheet, 'focus', () => this.redraw());
    this.listen(this.sheet, 'blur', () => this.redraw());
    this.observer = new ResizeObserver(() => this.relayout());
    this.observer.observe(this.box);
    document.body.append(this.tip);
  }

  listen(target, name, f, o) {
    target.addEventListener(name, f, o);
    this.off.push(() => target.removeEventListener(name, f, o));
  }

  sizeChoice() {
    const s = el('select', { 'aria-label': 'Size of GPUs', 'data-key': 'size', onchange: (e) => setFilters({ size: e.target.value }) },
      el('option', { value: '' }, 'fitting size'), Object.entries(sizes).map(([k, v]) => el('option', { value: k }, v.name)));
    s.value = this.filters.size || '';
    return s;
  }

  tableButton() {
    this.button = el('button', { class: 'astable', 'data-key': 'astable', onclick: () => setFilters({ as: this.filters.as === 'table' ? '' : 'table' }) });
    return this.button;
  }

  // mount puts the map or the table into the box.
  mount() {
    const asTable = this.filters.as === 'table';
    this.button.textContent = asTable ? 'Show as map' : 'Show as table';
    this.legend.hidden = asTable;
    this.table = asTable ? gpuTable(this.store, (g) => this.select(g)) : null;
    fill(this.box, asTable ? this.table.element : this.sheet);
    this.recolour();
  }

  recolour() {
    this.colours = palette(document.documentElement);
    fill(this.legend, legend.map((x) => el('li', null, sample(this.colours, x), ' ' + x[0])));
    this.redraw();
  }

  filter(filters) {
    const remount = (filters.as || '') !== (this.filters.as || '');
    this.filters = filters;
    if (remount) this.mount();
    this.relayout();
  }

  update(topics) {
    if (!topics.has('fleet')) return;
    const fleet = this.store.fleet;
    if (fleet.shape !== this.shape) this.relayout();
    else if (this.pass) this.relayoutSoon(); // who passes the filter may have changed
    else if (this.table) this.relayoutSoon();
    this.redraw();
    this.panel.update();
  }

  relayoutSoon() {
    this.soon ??= setTimeout(() => { this.soon = null; this.relayout(); }, 1000);
  }

  // passing makes the test that the filters ask for, or null when all pass.
  passing() {
    const { q, tenant, pool, state } = this.filters;
    const match = matcher(q);
    const fleet = this.store.fleet;
    if (!match && !tenant && !pool && !state) return null;
    return (g) => {
      const h = fleet.hosts[g.host];
      if (pool && h.pool !== pool) return false;
      if (tenant && !g.slices.some((s) => s.tenant === tenant)) return false;
      if (state && stateOf(fleet, g) !== state) return false;
      return !match || match(`gpu ${g.n} ${h.name} ${h.pool} ${g.model.name} ${g.slices.map((s) => `${s.tenant} #${s.task} ${s.task}`).join(' ')}`);
    };
  }

  relayout() {
    const fleet = this.store.fleet;
    this.shape = fleet.shape;
    this.pass = this.passing();
    this.passed = this.pass ? new Set(fleet.gpus.filter(this.pass)) : null;
    const n = this.passed ? this.passed.size : fleet.gpus.length;
    this.count.textContent = this.passed ? `${num(n)} of ${count(fleet.gpus.length, 'GPU')} fit the filters` : `${count(fleet.gpus.length, 'GPU')} on ${count(fleet.hosts.length, 'host')}`;
    if (this.table) { this.table.show(this.passed ? fleet.gpus.filter((g) => this.passed.has(g)) : fleet.gpus); return; }
    const width = this.box.clientWidth;
    this.layout = layout(fleet, width, sizes[this.filters.size] ? this.filters.size : sizeFor(fleet.gpus.length), (h) => !this.passed || h.gpus.some((g) => this.passed.has(g)));
    this.sheet.style.height = Math.max(this.layout.height, 80) + 'px';
    this.redraw();
  }

  redraw() {
    if (this.waiting || this.table) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.paint(); });
  }

  // paint draws what the window shows. The canvas is as large as the window and sticks to
  // it while one scrolls, up to the end of the sheet.
  paint() {
    if (!this.layout || this.table) return;
    const top = this.sheet.getBoundingClientRect().top;
    const from = Math.min(Math.max(0, -top), Math.max(0, this.sheet.clientHeight - innerHeight));
    const scale = Math.min(devicePixelRatio || 1, 2), c = this.canvas, width = this.layout.width;
    if (c.width !== Math.round(width * scale) || c.height !== Math.round(innerHeight * scale)) {
      c.width = Math.round(width * scale);
      c.height = Math.round(innerHeight * scale);
      c.style.width = width + 'px';
      c.style.height = innerHeight + 'px';
    }
    const ctx = c.getContext('2d', { alpha: false });
    ctx.setTransform(scale, 0, 0, scale, 0, 0);
    ctx.fillStyle = this.colours.bg;
    ctx.fillRect(0, 0, width, innerHeight);
    ctx.translate(0, -from);
    this.drawn = 0;
    for (const v of visible(this.layout, from, from + innerHeight)) {
      if (v.host) this.paintHost(ctx, v);
      else this.paintPool(ctx, v.pool);
    }
    this.paintCursor(ctx);
    if (this.drawn && !this.marked) { // where `performance` shows it, for measuring
      this.marked = true;
      performance.mark('gpupool:ready');
    }
  }

  paintPool(ctx, p) {
    const c = this.colours;
    ctx.fillStyle = c.text;
    ctx.font = '600 14px system-ui, sans-serif';
    ctx.fillText(p.name, 0, p.y + 20);
    const w = ctx.measureText(p.name).width;
    const info = this.store.pools.find((x) => x.name === p.name);
    ctx.fillStyle = c.dim;
    ctx.font = '12px system-ui, sans-serif';
    ctx.fillText(info ? `${info.mode} · ${num(info.held_gpus)} of ${num(info.gpus)} held · ${info.waiting} waiting` : '', w + 12, p.y + 20, Math.max(10, this.layout.width - w - 12));
    ctx.fillStyle = c.line;
    ctx.fillRect(0, p.y + 27, this.layout.width, 1);
  }

  paintHost(ctx, { pool, host, x, y }) {
    const c = this.colours;
    ctx.fillStyle = host.up ? c.dim : c.bad;
    ctx.font = '11px system-ui, sans-serif';
    ctx.fillText(host.up ? host.name : host.name + ' away', x, y + 12, pool.blockW);
    const label = this.layout.size.w >= 40;
    host.gpus.forEach((g, i) => {
      const t = tile(this.layout, pool, i);
      draw(ctx, c, g, x + t.x, y + t.y, t.w, t.h, { usable: this.store.fleet.usable(g), dim: this.passed && !this.passed.has(g), label });
      this.drawn++;
    });
  }

  paintCursor(ctx) {
    const mark = (gpu, width) => {
      const p = gpu && place(this.layout, gpu, this.store.fleet.hosts[gpu.host]);
      if (!p) return;
      ctx.strokeStyle = this.colours.focus;
      ctx.lineWidth = width;
      ctx.strokeRect(p.x - 1.5, p.y - 1.5, p.w + 3, p.h + 3);
    };
    const now = (n) => (n == null ? null : this.store.fleet.gpus[n]);
    mark(now(this.selected), 2);
    if (document.activeElement === this.sheet) mark(now(this.cursor), 3);
  }

  under(e) {
    const r = this.sheet.getBoundingClientRect();
    return this.layout ? hit(this.layout, e.clientX - r.left, e.clientY - r.top) : null;
  }

  hover(e) {
    const g = this.under(e);
    this.tip.hidden = !g || e.pointerType === 'touch';
    this.sheet.style.cursor = g ? 'pointer' : '';
    if (!g) return;
    fill(this.tip, this.sentences(g).map((s, i) => el(i ? 'div' : 'strong', null, s)));
    const w = this.tip.offsetWidth, h = this.tip.offsetHeight;
    this.tip.style.left = Math.max(4, Math.min(e.clientX + 14, innerWidth - w - 8)) + 'px';
    this.tip.style.top = (e.clientY + h + 24 > innerHeight ? e.clientY - h - 10 : e.clientY + 16) + 'px';
  }

  // sentences say of a GPU what its picture shows.
  sentences(g) {
    const fleet = this.store.fleet, h = fleet.hosts[g.host];
    const out = [`GPU ${g.n} · ${h.name} · ${g.model.name}`];
    if (g.health !== 'ok') out.push(`it is ${g.health}`);
    if (!h.up) out.push('its host is away');
    if (g.slices.length === 0) out.push('free');
    for (const s of g.slices) out.push(s.task ? `${s.tenant} #${s.task}: ${profile(g, s)}, ${s.use < 0 ? useWord(s.use) : `${s.use} % busy`}` : `another tenant: ${profile(g, s)}`);
    if (g.slices.length > 1) out.push(`${Math.round(held(g) / 10)} % held`);
    return out;
  }

  select(g) {
    this.selected = g ? g.n : null;
    if (g) this.cursor = g.n;
    this.panel.show(g);
    this.relayout();
  }

  key(e) {
    const move = { ArrowRight: 'x+', ArrowLeft: 'x-', ArrowDown: 'y+', ArrowUp: 'y-', Home: 'home', End: 'end' }[e.key];
    if (e.key === 'Enter' && this.cursor != null) { e.preventDefault(); this.select(this.store.fleet.gpus[this.cursor]); this.panel.focus(); return; }
    if (e.key === 'Escape') { this.select(null); return; }
    if (!move || !this.layout) return;
    e.preventDefault();
    this.cursor = this.next(move);
    const g = this.store.fleet.gpus[this.cursor];
    if (!g) return;
    document.getElementById('said').textContent = this.sentences(g).join('; ');
    this.reveal(g);
  }

  // next is the GPU that an arrow leads to: the neighbour in the picture.
  next(move) {
    const hosts = this.layout.pools.flatMap((p) => p.hosts);
    const fleet = this.store.fleet;
    const first = hosts[0]?.gpus[0]?.n;
    if (this.cursor == null || move === 'home' || !hosts.includes(fleet.hosts[fleet.gpus[this.cursor]?.host])) return first;
    if (move === 'end') return hosts.at(-1).gpus.at(-1).n;
    const g = fleet.gpus[this.cursor], host = fleet.hosts[g.host];
    if (move[0] === 'x') {
      const row = hosts.flatMap((h) => h.gpus);
      return (row[row.indexOf(g) + (move === 'x+' ? 1 : -1)] || g).n;
    }
    const at = place(this.layout, g, host), step = move === 'y+' ? 1 : -1;
    for (let y = at.y + at.h / 2 + step * (at.h / 2 + 2), i = 0; i < 200; y += step * 6, i++) {
      const found = hit(this.layout, at.x + at.w / 2, y) || hit(this.layout, 8, y);
      if (found && found !== g) return found.n;
    }
    return g.n;
  }

  reveal(g) {
    const p = place(this.layout, g, this.store.fleet.hosts[g.host]);
    if (p) {
      const y = this.sheet.getBoundingClientRect().top + p.y;
      if (y < 60) scrollBy(0, y - 60);
      else if (y + p.h > innerHeight - 20) scrollBy(0, y + p.h - innerHeight + 20);
    }
    this.redraw();
  }

  close() {
    this.off.forEach((f) => f());
    this.observer.disconnect();
    clearTimeout(this.soon);
    this.tip.remove();
    this.panel.close();
  }
}

