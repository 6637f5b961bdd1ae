// The bar of filters. What it shows is the query of the address, and what is typed into it
// goes there.
import { el, fill } from './dom.js';
import { setFilters } from './place.js';

const hints = { '/': 'GPU, host, model, tenant or task', '/queue': 'Name, number, request or reason', '/tasks': 'Name, number or request', '/pools': 'Pool', '/tenants': 'Tenant', '/events': 'Words, task or kind' };

export function filterBar(bar, store, at) {
  const { view, filters } = at;
  bar.hidden = view.filters.length === 0;
  const signature = view.path + '|' + store.tenants.map((t) => t.name) + '|' + store.pools.map((p) => p.name) + '|' + JSON.stringify(filters);
  if (bar.dataset.is === signature) return;
  // While someone types, only what is around the field may change.
  if (bar.contains(document.activeElement) && bar.dataset.view === view.path && document.activeElement.type === 'search') { refill(bar, store, view, filters); return; }
  bar.dataset.is = signature;
  bar.dataset.view = view.path;
  fill(bar, view.filters.map((f) => (f === 'q' ? search(view, filters) : choice(f, options(f, store, view), filters))), clear(view, filters));
}

function refill(bar, store, view, filters) {
  const old = bar.querySelector('.clear');
  old?.replaceWith(clear(view, filters));
}

function search(view, filters) {
  let waiting;
  return el('label', { class: 'search' }, el('span', { class: 'unseen' }, 'Search: ' + hints[view.path]),
    el('input', { type: 'search', id: 'search', 'data-key': 'search', placeholder: hints[view.path] + '   /', value: filters.q || '', spellcheck: 'false', autocomplete: 'off',
      oninput: (e) => { clearTimeout(waiting); waiting = setTimeout(() => setFilters({ q: e.target.value.trim() }), 120); } }));
}

function options(name, store, view) {
  if (name === 'tenant') return store.tenants.map((t) => t.name);
  if (name === 'pool') return store.pools.map((p) => p.name);
  return view.states;
}

function choice(name, list, filters) {
  const now = filters[name] || '';
  if (now && !list.includes(now)) list = [...list, now];
  const s = el('select', { 'data-key': 'filter-' + name, onchange: (e) => setFilters({ [name]: e.target.value }) },
    el('option', { value: '' }, `any ${name}`), list.map((x) => el('option', { value: x, selected: x === now }, x)));
  s.value = now;
  return el('label', null, el('span', { class: 'unseen' }, name[0].toUpperCase() + name.slice(1)), s);
}

function clear(view, filters) {
  const set = view.filters.filter((f) => filters[f]);
  return el('button', { class: 'quiet clear', type: 'button', hidden: set.length === 0, onclick: () => {
    const box = document.getElementById('search');
    if (box) box.value = '';
    setFilters(Object.fromEntries(set.map((f) => [f, ''])));
  } }, 'Clear');
}

// matcher says whether a text has every word that was searched for.
export function matcher(q) {
  const words = (q || '').toLowerCase().split(/\s+/).filter(Boolean);
  return words.length === 0 ? null : (text) => { const t = text.toLowerCase(); return words.every((w) => t.includes(w)); };
}
