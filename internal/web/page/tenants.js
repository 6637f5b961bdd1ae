// Tenants against their quota.
import { bar, el, fill, link, table } from './dom.js';
import { matcher } from './filters.js';
import { count, num } from './words.js';

export function tenants(root, store, at) {
  let filters = at.filters;

  function render() {
    const match = matcher(filters.q);
    const list = store.tenants.filter((t) => !match || match(t.name));
    const most = Math.max(1, ...list.map((t) => Math.max(t.held_gpus, t.limit_gpus || 0, t.guarantee_gpus || 0)));
    fill(root, el('p', { class: 'tools dim', role: 'status' }, count(list.length, 'tenant')), table('Tenants', columns(most), list, 'No tenant fits the search.'));
  }

  return { update(topics) { if (topics.has('tenants')) render(); }, filter(f) { filters = f; render(); } };
}

function columns(most) {
  return [
    { name: 'Tenant', cell: (t) => link('/?tenant=' + encodeURIComponent(t.name), null, t.name) },
    { name: 'Held', class: 'n', cell: (t) => num(t.held_gpus) },
    { name: 'Limit', class: 'n', cell: (t) => (t.limit_gpus ? num(t.limit_gpus) : 'none') },
    { name: 'Guaranteed', class: 'n', cell: (t) => (t.guarantee_gpus ? num(t.guarantee_gpus) : 'none') },
    { name: 'Against its quota', class: 'wide', cell: (t) => quota(t, most) },
    { name: 'Running', class: 'n', cell: (t) => ofMost(t.running, t.max_running) },
    { name: 'Waiting', class: 'n', cell: (t) => link(`/queue?tenant=${encodeURIComponent(t.name)}`, null, ofMost(t.waiting, t.max_waiting)) },
    { name: 'Weight', class: 'n', cell: (t) => num(t.weight) },
  ];
}

function ofMost(n, most) { return most ? `${num(n)} of ${num(most)}` : num(n); }

// quota draws all tenants on one scale, with marks where guarantee and limit are.
function quota(t, most) {
  const box = el('div', { class: 'quota' }, bar([{ share: Math.min(t.held_gpus, t.guarantee_gpus || 0) / most, class: 'held', name: 'guaranteed' },
    { share: (t.held_gpus - Math.min(t.held_gpus, t.guarantee_gpus || 0)) / most, class: t.guarantee_gpus ? 'over' : 'held', name: 'held' }]));
  for (const [at, cls] of [[t.guarantee_gpus, 'mark g'], [t.limit_gpus, 'mark l']]) {
    if (!at) continue;
    const m = el('i', { class: cls, 'aria-hidden': 'true' });
    m.style.left = (100 * Math.min(1, at / most)).toFixed(2) + '%';
    box.append(m);
  }
  const says = t.limit_gpus ? `${Math.round(100 * t.held_gpus / t.limit_gpus)} % of its limit` : t.guarantee_gpus ? (t.held_gpus > t.guarantee_gpus ? 'above its guarantee' : 'within its guarantee') : 'no quota';
  return [box, el('span', { class: 'dim' }, says)];
}
