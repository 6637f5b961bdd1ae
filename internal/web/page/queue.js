// Who waits, why, and until when: in the order in which they are expected to start.
import { el, fill, link, table } from './dom.js';
import { call } from './net.js';
import { matcher } from './filters.js';
import { ago, clock, count } from './words.js';

const shown = 500; // the server works out reasons for the first 100 of a page

export function queue(root, store, at) {
  let filters = at.filters, items = [], more = false, busy = false, again = false, closed = false, fault = '';

  async function load() {
    if (busy) { again = true; return; }
    busy = true;
    again = false;
    const q = new URLSearchParams({ state: 'queued', limit: String(shown) });
    for (const k of ['tenant', 'pool']) if (filters[k]) q.set(k, filters[k]);
    try {
      const page = await call('/v1/tasks?' + q);
      items = page.items;
      more = Boolean(page.next);
      fault = '';
    } catch (e) { fault = e.message; }
    if (closed) return;
    render();
    await new Promise((done) => setTimeout(done, 1500)); // at most one look in that time
    busy = false;
    if (again && !closed) load();
  }

  function render() {
    const match = matcher(filters.q);
    const rows = items.filter((t) => !match || match(`#${t.id} ${t.name || ''} ${t.tenant} ${t.pool} ${t.request} ${t.reason.message} ${t.reason.code}`));
    rows.sort((a, b) => when(a) - when(b) || a.id - b.id);
    fill(root, fault ? el('p', { role: 'alert', class: 'fault' }, fault) : null,
      el('p', { class: 'tools dim', role: 'status' }, `${count(rows.length, 'task')} ${rows.length === 1 ? 'waits' : 'wait'}${more ? ', of those shown first' : ''}, the next to start first`),
      table('Waiting tasks', columns, rows, match ? 'No waiting task fits the search.' : 'Nobody waits.'));
  }

  return { update(topics) { if (topics.has('tasks')) load(); }, filter(f) { filters = f; render(); load(); }, close() { closed = true; } };
}

function when(t) { return t.expected_start ? Date.parse(t.expected_start) : Infinity; }

const columns = [
  { name: 'Task', cell: (t) => link('/tasks/' + t.id, null, `#${t.id} ${t.name || ''}`) },
  { name: 'Tenant', cell: (t) => t.tenant },
  { name: 'Pool', cell: (t) => t.pool },
  { name: 'Priority', cell: (t) => (t.priority === 'high' ? el('strong', null, '▲ high') : t.priority === 'low' ? '▽ low' : t.priority) },
  { name: 'Asks for', cell: (t) => t.request },
  { name: 'Waits for', class: 'n', cell: (t) => ago(t.submitted) },
  { name: 'Expected start', cell: (t) => expected(t) },
  { name: 'Why it waits', class: 'wide', cell: (t) => t.reason.message || t.reason.code },
];

export function expected(t) {
  if (t.held) return 'once it is released';
  if (!t.expected_start) return 'not known';
  const late = t.expected_start_late ? `, by ${clock(t.expected_start_late)} at the latest` : '';
  return `about ${clock(t.expected_start)}${late}`;
}
