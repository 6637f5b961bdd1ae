// Pools: how much they have, who waits, what they lend, and their mode.
import { bar, el, fill, link, table } from './dom.js';
import { sure } from './actions.js';
import { matcher } from './filters.js';
import { totals } from './fleet.js';
import { call } from './net.js';
import { mayRun } from './roles.js';
import { clock, count, num, percent, span } from './words.js';

export function pools(root, store, at) {
  let filters = at.filters, says = '', timer = null, closed = false;
  const shadows = new Map(); // what pools that are not dynamic would hold if they were

  function render() {
    timer = null;
    if (root.contains(document.activeElement) && document.activeElement.tagName === 'SELECT') return later(); // do not pull a list from under a hand
    const match = matcher(filters.q);
    const list = store.pools.filter((p) => !match || match(p.name));
    fill(root, el('p', { role: 'status', class: 'tools dim' }, says || count(list.length, 'pool')),
      el('div', { class: 'cards' }, list.map((p) => card(p, totals(store.fleet, p.name), shadows.get(p.name), mayRun(store.self) ? setMode : null))));
  }

  function later() { timer ??= setTimeout(render, 2000); }

  async function look() {
    for (const p of store.pools) {
      if (p.mode === 'dynamic') shadows.delete(p.name);
      else try { shadows.set(p.name, await call(`/v1/pools/${encodeURIComponent(p.name)}/shadow`)); } catch { /* shown without it */ }
    }
    if (!closed) later();
  }

  async function setMode(p, mode) {
    const what = { static: 'Whole GPUs, exclusive. What runs goes on as it is.', shadow: 'As static; and it says what dynamic would do.', dynamic: 'Slices and shares; what idles may be taken back.' }[mode] || '';
    if (!await sure(`Set pool ${p.name} to ${mode}?`, what, 'Set it')) return render(); // the choice shows again what is in force
    try {
      const now = await call(`/v1/pools/${encodeURIComponent(p.name)}/mode`, { method: 'PUT', body: { mode } });
      says = `Pool ${now.name} is ${now.mode}.`;
      await store.loadPools();
    } catch (e) { says = e.message; }
    render();
  }

  return {
    update(topics) { if (topics.has('pools')) { render(); look(); } else if (topics.has('fleet')) later(); },
    filter(f) { filters = f; render(); },
    close() { closed = true; clearTimeout(timer); },
  };
}

const modes = ['static', 'shadow', 'dynamic'];

function card(p, t, shadow, setMode) {
  const share = (n) => (p.gpus ? n / p.gpus : 0);
  const facts = [
    ['GPUs', num(p.gpus)], ['held', `${num(p.held_gpus)}, ${Math.round(100 * share(p.held_gpus))}%`], ['free', num(p.free_gpus)], ['unusable', num(p.unusable)],
    ['hosts', num(p.hosts)], ['running', num(p.running)], ['idle tasks', num(p.idle)], ['parked', num(p.parked)],
    ['waiting', p.capacity ? `${num(p.waiting)} of ${num(p.capacity)}` : num(p.waiting)],
    ['real use', t.known > 0 ? percent(t.busyGPUs / t.known) : 'not known'],
    ['reserve', p.reserve_gpus ? num(p.reserve_gpus) + ' GPUs' : ''], ['borrows from', (p.borrow_from || []).join(', ')], ['longest wait', p.ttl],
  ];
  return el('section', { class: 'card', 'aria-label': 'Pool ' + p.name },
    el('div', { class: 'row' }, el('h2', null, link('/?pool=' + encodeURIComponent(p.name), { 'data-key': 'pool' + p.name }, p.name)), el('span', { class: 'badge mode' }, p.mode),
      setMode ? modeChoice(p, setMode) : null),
    bar([{ share: share(Math.max(0, p.held_gpus - t.idle)), class: 'held', name: 'held' }, { share: share(Math.min(t.idle, p.held_gpus)), class: 'idle', name: 'held and idle' }, { share: share(p.unusable), class: 'bad', name: 'unusable' }]),
    el('dl', { class: 'facts tight' }, facts.filter(([, v]) => v !== '' && v != null).map(([k, v]) => [el('dt', null, k), el('dd', null, v)])),
    p.fallback ? el('p', { class: 'note' }, `It fell back to static by itself: ${p.fallback}`) : null,
    p.mode_why ? el('p', { class: 'dim' }, `${p.mode} since ${clock(p.mode_since)}, set by ${p.mode_by}: ${p.mode_why}`) : null,
    p.mode_log?.length ? el('details', null, el('summary', { 'data-key': 'log' + p.name }, 'What led to it'), el('ul', null, p.mode_log.map((x) => el('li', null, x)))) : null,
    Object.keys(p.tenant_modes || {}).length ? el('p', { class: 'dim' }, 'In a mode of their own: ' + Object.entries(p.tenant_modes).map(([k, v]) => `${k} ${v}`).join(', ')) : null,
    shadow ? el('p', { class: 'dim' }, shadow.sentence) : null,
    p.warning ? el('p', { class: 'note' }, `Note: ${p.warning}.`) : null,
    p.lent?.length ? table('Lent by ' + p.name, loans, p.lent, '') : null);
}

function modeChoice(p, setMode) {
  const s = el('select', { 'aria-label': `Mode of pool ${p.name}`, 'data-key': 'mode' + p.name, 'data-do': 'mode', onchange: (e) => { e.target.blur(); setMode(p, e.target.value); } },
    modes.map((m) => el('option', { value: m }, m)));
  s.value = p.mode;
  return s;
}

const loans = [
  { name: 'Lent to', cell: (l) => l.borrower }, { name: 'GPUs now', class: 'n', cell: (l) => num(l.gpus) }, { name: 'GPU hours', class: 'n', cell: (l) => num(l.gpu_hours) },
  { name: 'Loans', class: 'n', cell: (l) => num(l.loans) }, { name: 'Asked back', class: 'n', cell: (l) => (l.called ? `${num(l.called)}, ${span(l.mean_s)} on average` : '0') },
];
