// GPUs held here, beside what a static site would have held for the same tasks: the
// server's books (docs/report.md) by day and pool, and below them the last minutes, which
// this page samples while it is open.
import { el, fill, table } from './dom.js';
import { chart } from './chart.js';
import { call } from './net.js';
import { clock, num, percent, span } from './words.js';

export function savings(root, store) {
  const books = el('section', { 'aria-label': 'The books' }), now = el('section', { 'aria-label': 'While this page is open' });
  let timer = null, closed = false, days = null, plot = null;
  fill(root, books, now);

  async function load() {
    clearTimeout(timer);
    try {
      const [byDay, byPool] = await Promise.all([call('/v1/report?by=day'), call('/v1/report?by=pool')]);
      if (closed) return;
      report(byDay, byPool);
    } catch (e) { if (!closed) fill(books, el('p', { role: 'alert', class: 'fault' }, e.message)); }
    timer = setTimeout(load, 30000);
  }

  function report(byDay, byPool) {
    const t = byDay.total;
    fill(books, el('div', { class: 'tiles' }, [
      ['saved', saved(t.held_gpu_hours, t.static_gpu_hours)], ['GPU hours held', num(t.held_gpu_hours)], ['of those idle', num(t.held_idle_gpu_hours)],
      ['static: GPU hours held', num(t.static_gpu_hours)], ['static: of those idle', num(t.static_idle_gpu_hours)], ['static: GPUs at once', num(t.static_gpus_peak)],
    ].map(([k, v]) => el('div', { class: 'card' }, el('div', { class: 'dim' }, k), el('div', { class: 'big' }, v)))),
    el('p', { class: 'dim' }, `From ${clock(byDay.since)} to ${clock(byDay.until)}. Static gives whole GPUs for as long as a task holds its place, parked or not.`));
    if (byDay.rows.length > 1) {
      days ??= chart('GPUs by day', [{ key: 'would', name: 'static would have held', style: 'would' }, { key: 'held', name: 'held', style: 'held' }]);
      books.append(el('div', { class: 'card' }, el('h2', null, 'By day, on average'), days.element));
      const rows = byDay.rows.filter((r) => r.hours > 0);
      requestAnimationFrame(() => days.show(rows.map((r) => ({ at: Date.parse(r.day), held: r.held_gpu_hours / r.hours, would: r.static_gpus_mean }))));
    }
    books.append(el('h2', null, 'By pool'), table('By pool', columns('Pool', (r) => r.pool), byPool.rows, 'The books are empty.'));
    if (byDay.rows.length > 1) books.append(el('details', null, el('summary', null, 'By day, as a table'), table('By day', columns('Day', (r) => r.day), byDay.rows, '')));
  }

  function live() {
    const s = store.samples;
    if (store.self.tenant || s.length === 0) return;
    const last = s.at(-1);
    plot ??= chart('GPUs held while this page is open', [{ key: 'would', name: 'static would hold', style: 'would' }, { key: 'held', name: 'held', style: 'held' }, { key: 'busy', name: 'really used', style: 'busy' }]);
    fill(now, el('h2', null, 'While this page is open'),
      el('p', null, `${num(last.held)} GPUs are held where static would hold ${num(last.would)}: ${saved(last.held, last.would)} saved, over the last ${span((last.at - s[0].at) / 1000)}.`),
      el('div', { class: 'card' }, plot.element),
      el('details', null, el('summary', { 'data-key': 'savingstable' }, 'As a table'), table('Samples', sampled, s.filter((_, i) => i % Math.ceil(s.length / 60) === 0).reverse(), '')));
    requestAnimationFrame(() => plot.show(s)); // once it has a width
  }

  load();
  return { update(topics) { if (topics.has('samples')) live(); }, filter() {}, close() { closed = true; clearTimeout(timer); } };
}

function saved(held, would) { return would > 0 ? percent(1 - held / would) : '–'; }

function columns(name, cell) {
  return [
    { name, cell },
    { name: 'GPU hours held', class: 'n', cell: (r) => num(r.held_gpu_hours) },
    { name: 'Of those idle', class: 'n', cell: (r) => num(r.held_idle_gpu_hours) },
    { name: 'Static would have held', class: 'n', cell: (r) => num(r.static_gpu_hours) },
    { name: 'Static, idle', class: 'n', cell: (r) => num(r.static_idle_gpu_hours) },
    { name: 'Saved', class: 'n', cell: (r) => saved(r.held_gpu_hours, r.static_gpu_hours) },
    { name: 'Static, at once', class: 'n', cell: (r) => num(r.static_gpus_peak) },
    { name: 'In use, at once', class: 'n', cell: (r) => (r.in_use_gpus_peak == null ? '–' : num(r.in_use_gpus_peak)) },
    { name: 'Mean wait', class: 'n', cell: (r) => (r.placed ? span(r.waited_s / r.placed) : '–') },
  ];
}

const sampled = [
  { name: 'At', cell: (s) => clock(new Date(s.at), true) }, { name: 'Held', class: 'n', cell: (s) => num(s.held) },
  { name: 'Static would hold', class: 'n', cell: (s) => num(s.would) }, { name: 'Really used', class: 'n', cell: (s) => num(s.busy || 0) },
];
